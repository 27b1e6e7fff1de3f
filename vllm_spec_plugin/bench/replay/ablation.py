"""What each mechanism of the policy `optimal` gains: replayed with it and without it."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from vllm_spec_plugin.bench.drafting.stopwatch import replaced
from vllm_spec_plugin.bench.replay.recording import Recording
from vllm_spec_plugin.bench.replay.settings import OPTIMAL, Arm, Sizes, optimal, replay
from vllm_spec_plugin.scheduling.draft_length import acceptance, expectation, optimal_control, regression
from vllm_spec_plugin.scheduling.draft_length.comparison import Comparison
from vllm_spec_plugin.scheduling.draft_length.optimal_control import OptimalControl
from vllm_spec_plugin.scheduling.draft_length.regression import ForgetfulRegression

Switch = Callable[[], AbstractContextManager[None]]

_NEVER = 1e9


def _instead(owner: Any, name: str, value: Any) -> Switch:
    """Replaces a name that is looked up outside compiled code; where it is not there, that is an error."""
    return lambda: replaced(owner, name, lambda _: value)


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *args: init(self, *args[:3], forgetting=1e-12)


# By name, what switches a mechanism off while a control is made and serves.
MECHANISMS: dict[str, Switch] = {
    "comparison with steps without drafts": _instead(Comparison, "is_off", lambda *_: False),
    "trials of proposers": _instead(OptimalControl, "_other_lane", lambda *_: None),
    "choice of proposers for the batch": _instead(OptimalControl, "_compared", lambda _: []),
    "catch-up spread over steps": _instead(optimal_control, "CATCH_UP_STEPS", 1),
    "margin to begin": _instead(optimal_control, "BEGIN", 0.0),
    "requests told apart": _instead(expectation, "_STRENGTHS", (_NEVER,)),
    "how much requests differ, learned": _instead(expectation, "_STRENGTHS", (6.0,)),
    "evidence aged by drafts": _instead(acceptance, "TOKENS_PER_DRAFT", 0.0),
    "costs forgotten": lambda: replaced(ForgetfulRegression, "__init__", _remembering),
    "anchors of costs": _instead(regression, "NUM_ANCHORS", 1),
}


@dataclass(frozen=True)
class Gain:
    """What a mechanism gains in one setting.

    Attributes:
        mechanism: its name.
        workload: name of the workload.
        streams: requests in flight.
        mean: tokens per second with it over those without it, less 1; mean over seeds.
        error: standard error of the mean; 0 with one seed.
    """

    mechanism: str
    workload: str
    streams: int
    mean: float
    error: float


def ablate(
    recording: Recording, workload: str, streams: int, sizes: Sizes, mechanisms: Sequence[str] = tuple(MECHANISMS)
) -> Iterator[Gain]:
    """What each mechanism gains in a setting."""
    everyone = tuple(range(len(recording.methods)))
    arm = Arm(OPTIMAL, everyone, recording.config.draft_length.tokens, partial(optimal, recording, everyone))
    whole = replay(recording, arm, workload, streams, sizes)
    for mechanism in mechanisms:
        with MECHANISMS[mechanism]():
            without = replay(recording, arm, workload, streams, sizes)
        ratios = [own / other - 1 for own, other in zip(whole.by_seed, without.by_seed, strict=True)]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
        yield Gain(mechanism, workload, streams, statistics.fmean(ratios), error)
