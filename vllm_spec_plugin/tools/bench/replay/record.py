"""Makes a recording with running engines."""

import dataclasses
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan, plan_file
from vllm_spec_plugin.tools.bench.load.records import Request
from vllm_spec_plugin.tools.bench.load.texts import different
from vllm_spec_plugin.tools.bench.load.workloads import BEGINNINGS, EASY, HARD
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.prompts import PROMPTS
from vllm_spec_plugin.tools.bench.records import Job
from vllm_spec_plugin.tools.bench.replay.costs import Costs, Sample, costs_of
from vllm_spec_plugin.tools.bench.replay.traces import EDIT, MOST_NODES, Trace, Verified
from vllm_spec_plugin.tools.bench.rounds import in_turn
from vllm_spec_plugin.tools.bench.running import Engines, running_engines

KINDS = (EASY, HARD, EDIT)
_NONE, _PLUGIN = "none", "plugin"
_HARD_TEMPERATURE = 1.5


@dataclass(frozen=True)
class Sizes:
    """How much is recorded.

    Attributes:
        num_requests: responses of each kind.
        num_tokens: output tokens of each, longest draft included.
        levels: numbers of requests at once that steps are timed with.
        lengths: draft lengths that steps are timed with, the longest draft among them.
        num_steps: steps of each of these, about.
        rounds: how often they are timed.
        seed: of the first round.
    """

    num_requests: int
    num_tokens: int
    levels: tuple[int, ...]
    lengths: tuple[int, ...]
    num_steps: int
    rounds: int
    seed: int


def requests_of(kind: str, count: int, num_tokens: int) -> list[Request]:
    """Different requests of a kind."""
    found = []
    for number in range(count):
        prompt = different(PROMPTS if kind == EDIT else BEGINNINGS, number)
        if kind == EDIT:
            prompt = f"{prompt}\n\n\n{prompt}\n\n\n{prompt[:24]}"
        found.append(Request(kind, prompt, _HARD_TEMPERATURE if kind == HARD else 0.0, num_tokens))
    return found


def fixed(config: PluginConfig, tokens: int) -> PluginConfig:
    """The configuration with that draft length in every step.

    Raises:
        UserError: a draft has more tokens than a recording holds.
    """
    if tokens > MOST_NODES:
        raise UserError(f"--tokens {tokens}; allowed: up to {MOST_NODES}")
    sections = config.model_dump(mode="json") | {"draft_length": {"policy": "fixed", "tokens": tokens}}
    return parse_config(sections, "the configuration to record")


def running(
    config: PluginConfig, target: str, seed: int, folder: Path, console: Console
) -> AbstractContextManager[Engines]:
    """Starts the engine that records, and one without speculation to compare with; they end with the context.

    Raises:
        UserError: one did not start.
    """
    path = folder / "plugin.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    arms = {_PLUGIN: PlannedArm(plan_file(path)), _NONE: PlannedArm(ArmPlan(None))}
    # Each job computes its prompts.
    return running_engines(arms, target, seed, False, folder, console, {"enable_prefix_caching": False})


def record_outcomes(arm: Arm, config: PluginConfig, sizes: Sizes, on_run: Callable[[str], None]) -> tuple[Trace, ...]:
    """Records all proposers' outcomes for the same responses.

    Raises:
        UserError: the engine ended.
    """
    traces = []
    for kind in KINDS:
        requests = requests_of(kind, sizes.num_requests, sizes.num_tokens)
        responses: list[list[int]] = []
        by_proposer = []
        for proposer in config.proposers:
            on_run(f"outcomes: {kind}, {proposer.method}")
            answer = arm.record(requests, proposer.method, responses, sizes.seed)
            responses = responses or answer["responses"]
            by_proposer.append(answer["outcomes"])
        # Near a response's end drafts are cut.
        usable = sizes.num_tokens - config.draft_length.tokens - 1
        for i, length in enumerate(answer["prompt_tokens"]):
            outcomes = tuple(
                tuple(Verified(drafted, tuple(nodes)) for drafted, nodes in of_proposer[i][:usable])
                for of_proposer in by_proposer
            )
            traces.append(Trace(kind, length, outcomes))
    return tuple(traces)


def record_costs(
    arm_of: Callable[[str], Arm],
    config: PluginConfig,
    sizes: Sizes,
    machine: NoiseGate,
    on_run: Callable[[str], None],
) -> Costs:
    """Times steps of all sizes, arms in turn.

    Raises:
        UserError: an engine ended.
    """
    wanted: dict[str, tuple[int | None, int]] = {"none": (None, 0), "nothing drafted": (0, 0)}
    for number, proposer in enumerate(config.proposers):
        # Without passes of its own one after the other, any draft costs a proposer about the same.
        lengths = sizes.lengths if proposer.keeps_kv else sizes.lengths[-1:]
        wanted |= {f"{proposer.method}, {length} tokens": (number, length) for length in lengths}
    samples = []
    for number, level, name in in_turn(list(wanted), sizes.levels, 1 + sizes.rounds):
        on_run(f"costs: {name}, {level} at once{'' if number else ', to warm up'}")
        proposer_index, length = wanted[name]
        prompts = tuple(request.prompt for request in requests_of(EASY, level, 0))
        # Of a long draft about half is accepted.
        job = Job(prompts, 0.0, sizes.num_steps * (1 + length // 2) if number else 2 + length, sizes.seed)
        if proposer_index is not None:
            method = config.proposers[proposer_index].method if length else None
            job = dataclasses.replace(job, spec_tokens=length, spec_method=method)
        answer, _ = machine.run(partial(arm_of(_NONE if proposer_index is None else _PLUGIN).run, job))
        if number:
            samples.append(Sample(proposer_index, level, length, answer.steps, sum(map(len, answer.prompt_token_ids))))
    probe = [arm_of(_PLUGIN).probe() for _ in range(3)]
    medians = {size: statistics.median(t for one in probe for n, t in one if n == size) for size, _ in probe[0]}
    return costs_of(samples, len(config.proposers), [(size, medians[size]) for size, _ in probe[0]])


def nameless(config: PluginConfig) -> PluginConfig:
    """The configuration with models by their folder's name: their paths are the machine's own."""
    sections = config.model_dump(mode="json")
    for section in (sections["proposer"], *sections["proposer"].get("proposers", ())):
        if section.get("model"):
            section["model"] = Path(section["model"]).name
    return parse_config(sections, "the configuration to record")
