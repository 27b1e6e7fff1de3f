"""Settings that policies are replayed in, and what each policy reaches there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from vllm_spec_plugin.scheduling.draft_length.control import DraftLengthControl
from vllm_spec_plugin.scheduling.draft_length.create import create_control
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl
from vllm_spec_plugin.tools.bench.arms import NONE, OPTIMAL
from vllm_spec_plugin.tools.bench.load.workloads import EASY, HARD, MIXED, SWITCHES, SWITCHING
from vllm_spec_plugin.tools.bench.replay.recording import Recording
from vllm_spec_plugin.tools.bench.replay.server import Load, Result, Server
from vllm_spec_plugin.tools.bench.replay.sizes import Sizes
from vllm_spec_plugin.tools.bench.replay.traces import EDIT

# Kinds of text that requests take in turn, phase by phase.
WORKLOADS: dict[str, tuple[tuple[str, ...], ...]] = {
    EASY: ((EASY,),),
    HARD: ((HARD,),),
    EDIT: ((EDIT,),),
    MIXED: ((EASY, HARD),),
    SWITCHING: tuple((kind,) for kind in SWITCHES),
}
OFF = "fixed K = 0"
FIXED = (1, 2, 4, 8)
# A server's first steps, which have to be no slower than without speculation either.
FIRST_STEPS = 100
_MAX_STEP_TOKENS = 2048

MakeControl = Callable[[], DraftLengthControl | None]


@dataclass(frozen=True)
class Arm:
    """A policy with its proposers.

    Attributes:
        name: as the tables call it.
        proposers: indices of the recorded proposers that take part.
        most: most draft tokens.
        make: makes its control; None is no plugin.
    """

    name: str
    proposers: tuple[int, ...]
    most: int
    make: MakeControl


def optimal(recording: Recording, proposers: Sequence[int]) -> DraftLengthControl:
    """The policy under test for some of the recorded proposers."""
    config = recording.config_of(proposers, "optimal", recording.config.draft_length.tokens)
    return create_control(config, _MAX_STEP_TOKENS)


def arms_of(recording: Recording) -> Iterator[Arm]:
    """No speculation, fixed draft lengths of all proposers, and the policy with all of them and with each alone."""
    count, most = len(recording.methods), recording.config.draft_length.tokens
    all_proposers = tuple(range(count))
    yield Arm(NONE, all_proposers, 0, lambda: None)
    yield Arm(OFF, all_proposers, 0, FixedControl)
    groups = [all_proposers, *(((index,) for index in all_proposers) if count > 1 else ())]
    for group in groups:
        name = name_of(recording, group)
        yield Arm(f"{OPTIMAL}{name}", group, most, partial(optimal, recording, group))
        for tokens in (length for length in FIXED if length <= most):
            yield Arm(f"fixed K = {tokens}{name}", group, tokens, FixedControl)


def name_of(recording: Recording, proposers: Sequence[int]) -> str:
    """What is added to a policy's name that only some of the proposers serve."""
    methods = recording.methods
    return "" if len(proposers) == len(methods) else f", {', '.join(methods[index] for index in proposers)}"


def replay(recording: Recording, arm: Arm, workload: str, streams: int, sizes: Sizes) -> list[dict[str, float]]:
    """Serves a workload by one arm.

    Returns:
        By seed: tokens per second of the whole load and of the first steps, and draft tokens verified per step.
    """
    server = Server(recording, arm.proposers, arm.most)
    found = []
    for seed in range(sizes.seed, sizes.seed + sizes.seeds):
        load = Load(streams, WORKLOADS[workload], sizes.tokens, sizes.request_tokens, seed)
        result: Result = server.serve(load, arm.make())
        found.append(
            {
                "tokens_per_second": result.tokens_per_second,
                "first_tokens_per_second": result.first(FIRST_STEPS).tokens_per_second,
                "draft_tokens": result.draft_tokens,
            }
        )
    return found
