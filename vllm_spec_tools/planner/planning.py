"""Measures all candidates, predicts, compares the best with no speculation, and recommends."""

import random
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from vllm_spec_tools.bench.arms import NONE, Engines, PlannedArm, plan_sections
from vllm_spec_tools.bench.engine_args import ArmPlan, plan_file
from vllm_spec_tools.bench.load.sweep import SweepPlan, SweepResults, run_rounds, run_sweep, turns
from vllm_spec_tools.bench.load.workloads import LoadSizes, varied
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import Cell, LoadJob, LoadRequest, Phase
from vllm_spec_tools.planner.candidates import CandidateEngine
from vllm_spec_tools.planner.forecast import Forecast, Measured, Workload, forecasts, workloads_of
from vllm_spec_tools.planner.recommending import RECOMMENDED, TRAFFIC, Recommendation, choose, verdict
from vllm_spec_tools.report import plural
from vllm_spec_tools.report.provenance import machine_text

# Of the passes that predict; the final comparison decides, and has its own.
_PASS_ROUNDS = 2
_WARM_UP_TOKENS = 16
# Of the final comparison, per stream of a run.
_REQUESTS = 4
_WIDTH = 100


@dataclass(frozen=True)
class Passes:
    """The load that predictions are made from: a workload's requests of a round, all sent at once, with their steps.

    Of conversations it has the first turns only.
    """

    workloads: Sequence[Workload]
    levels: Sequence[int]
    seed: int
    rounds: int = _PASS_ROUNDS

    @property
    def cells(self) -> Sequence[Cell]:
        """Workloads and numbers of streams."""
        return [(one.name, level) for level in self.levels for one in self.workloads]

    def job(self, cell: Cell, number: int, *, is_warm_up: bool = False) -> LoadJob:
        """Returns the job of a round; each begins with the request behind the last one of the round before."""
        name, streams = cell
        [workload] = (one for one in self.workloads if one.name == name)
        num_tokens = min(_WARM_UP_TOKENS, workload.num_tokens) if is_warm_up else workload.num_tokens
        requests = (workload.requests[(number * streams + i) % len(workload.requests)] for i in range(streams))
        sent = tuple(replace(request, num_tokens=num_tokens, turns=()) for request in requests)
        phase = Phase(sent, streams * num_tokens, is_pass=True)
        return LoadJob(streams, (phase,), self.seed + number, record_steps=True)


def traffic_plan(requests: Sequence[LoadRequest], levels: Sequence[int], rounds: int, seed: int) -> SweepPlan:
    """Returns the load of the final comparison: all requests mixed, with lengths that differ, in a closed loop."""
    rng = random.Random(seed)
    mean = sum(request.num_tokens for request in requests) / len(requests)
    mixed = [request for _ in range(_REQUESTS) for request in rng.sample(requests, len(requests))]
    sent = tuple(replace(request, num_tokens=varied(rng, request.num_tokens)) for request in mixed)
    sizes = LoadSizes(stream_tokens=round(_REQUESTS * mean), min_total_tokens=2)
    return SweepPlan(tuple((TRAFFIC, level) for level in levels), (), sizes, rounds, seed, {TRAFFIC: sent})


@dataclass(frozen=True)
class Plan:
    """Measurements, forecasts, their check and the recommendation.

    Attributes:
        measured: engines with their passes; at least one.
        compared: the best candidate, as `RECOMMENDED`, and no speculation; None if nothing is expected to gain.
        facts: what each arm's engine chose by itself.
        others: per pass, the cores that other processes used meanwhile; empty where that is unknown.
    """

    workloads: Sequence[Workload]
    levels: Sequence[int]
    measured: Sequence[tuple[CandidateEngine, Measured]]
    forecasts: Sequence[Forecast]
    choice: Forecast
    compared: SweepResults | None
    verdict: Recommendation
    facts: Mapping[str, Mapping[str, Any]]
    others: Sequence[float] = ()

    @property
    def rounds(self) -> int:
        """Number of rounds of the final comparison that both arms did."""
        return self.compared.rounds if self.compared else 0


@dataclass(frozen=True)
class Recommender:
    """Measures each engine's arms in turn with no speculation, predicts, compares the best, and recommends.

    Attributes:
        candidates: engines; at most two run at once, one of them without speculation.
        requests: of the traffic.
        levels: numbers of streams, rising.
        rounds: of the final comparison.
        folder: for files of engines.
        new_gate: makes the gate of the passes, and that of the final comparison.
    """

    candidates: Sequence[CandidateEngine]
    requests: Sequence[LoadRequest]
    levels: Sequence[int]
    rounds: int
    seed: int
    folder: Path
    new_gate: Callable[[], NoiseGate]
    one_at_a_time: bool = False

    @cached_property
    def passes(self) -> Passes:
        """Returns the load that predictions are made from."""
        return Passes(workloads_of(self.requests), tuple(self.levels), self.seed)

    @cached_property
    def groups(self) -> list[tuple[CandidateEngine, dict[str, PlannedArm]]]:
        """Returns each engine with the arms that take turns, no speculation first."""
        none = {NONE: PlannedArm(ArmPlan(None))}
        paths = (self.folder / f"candidate-{i}.yaml" for i in range(len(self.candidates)))
        return [
            (one, none | one.arms(plan_sections(one.sections, path, one.name)))
            for one, path in zip(self.candidates, paths, strict=True)
        ]

    @property
    def arms(self) -> dict[str, PlannedArm]:
        """Returns all arms that are measured."""
        return {name: arm for _, own in self.groups for name, arm in own.items()}

    @property
    def total(self) -> int:
        """Counts the jobs at most, and the comparison of greedy outputs."""
        sizes = [(list(own), self.passes.cells, self.passes.rounds) for _, own in self.groups]
        sizes.append(([NONE, RECOMMENDED], self.passes.cells[: len(self.levels)], self.rounds))
        return 1 + sum(len(turns(*size, one_at_a_time=self.one_at_a_time)) for size in sizes)

    def run(self, engines: Engines, on_run: Callable[[str], None], origin: Mapping[str, Any]) -> Plan:
        """Recommends.

        Args:
            engines: of all arms, which start when they are asked for.
            on_run: called before each run with a description.
            origin: provenance, for the comments of the best candidate's plugin.yaml.

        Raises:
            UserError: an engine did not start, or ended, or the jobs were too short.
        """
        gate, measured = self.new_gate(), list[tuple[CandidateEngine, Measured]]()
        found, others = list[Forecast](), list[float]()
        for engine, own in self.groups:
            self._start(engines, own)
            runs = list(run_rounds(own, engines, self.passes, gate, on_run, one_at_a_time=self.one_at_a_time))
            engines.close(list(own)[-1])
            measured.append((engine, Measured(runs)))
            others += [run.others for run in runs if run.others is not None]
            found += forecasts(measured[-1][1], engine.candidates, self.passes.workloads, self.levels)
        choice, compared = choose(found), None
        if choice.tokens:
            path = self.folder / "recommended.yaml"
            path.write_text(plugin_yaml(choice, None, origin), encoding="utf-8")
            final = {NONE: PlannedArm(ArmPlan(None)), RECOMMENDED: PlannedArm(plan_file(path))}
            engines.add({RECOMMENDED: final[RECOMMENDED].plan})
            self._start(engines, final)
            load = traffic_plan(self.requests, self.levels, self.rounds, self.seed)
            compared = run_sweep(final, engines, load, self.new_gate(), on_run, one_at_a_time=self.one_at_a_time)
        answer = verdict(choice, compared.measurements if compared else None)
        return Plan(
            self.passes.workloads, self.passes.levels, measured, found, choice, compared, answer, engines.facts, others
        )

    def _start(self, engines: Engines, arms: Mapping[str, Any]) -> None:
        """Starts engines before a gate times their jobs."""
        for name in () if self.one_at_a_time else arms:
            engines.of(name)


def plugin_yaml(choice: Forecast, verdict: Recommendation | None, origin: Mapping[str, Any]) -> str:
    """Returns a file for `vllm serve --speculative-config`, with comments that say where it comes from.

    Args:
        choice: what it switches on; at least one draft token.
        verdict: the answer; None if it is not known yet.
        origin: provenance.
    """
    model = origin["models"]["target"]
    told = [
        f"Written by `vllm-spec bench --recommend` on {origin['date'][:10]} for {model}, from "
        f"{origin['prompts']['count']} prompts, on {machine_text(origin, short=True)}, vLLM "
        f"{origin['versions']['vllm']}.",
        *([verdict.answer, *verdict.reasons] if verdict is not None else []),
        f"vllm-spec check THIS_FILE --model {model}",
        f"vllm serve {model} --speculative-config THIS_FILE",
    ]
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )
    # A path may have anything in it but must not end a comment.
    comments = "\n".join(wrapper.fill(text if text.isprintable() else repr(text)) for text in told)
    proposer = yaml.safe_dump({"proposer": choice.candidate.proposer}, sort_keys=False, allow_unicode=True)
    # Without levels where the forecast drafts nothing: the comparison may have gained there.
    drafting = {level: best.tokens for level, best in choice.best.items() if best.tokens}
    best = ", ".join(f"{tokens} at {plural(level, 'stream')}" for level, tokens in drafting.items())
    return (
        f"{comments}\n\n{proposer}\n"
        "draft_length:\n"
        "  # As much as pays, by acceptance and time that the server measures itself; none where none does.\n"
        "  policy: optimal\n"
        f"  # Maximum per request and step; predicted to be fastest: {best}.\n"
        f"  tokens: {choice.tokens}\n"
    )


def write_plugin_yaml(plan: Plan, origin: Mapping[str, Any], path: Path, *, anyway: bool) -> str:
    """Writes the recommended file if the answer is to speculate.

    Args:
        anyway: whether to write it also if the answer is not to speculate.

    Returns:
        What was done, for people.

    Raises:
        OSError: the file cannot be written.
    """
    if not plan.choice.tokens:
        return f"{path} is not written: nothing that was considered would draft."
    if not (plan.verdict.is_on or anyway):
        return f"{path} is not written, as the answer is to leave it off; --out-anyway writes it."
    path.write_text(plugin_yaml(plan.choice, plan.verdict, origin), encoding="utf-8")
    return f"{path} is written: vllm serve {origin['models']['target']} --speculative-config {path}"
