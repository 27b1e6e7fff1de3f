"""Predicts every candidate's speedup from measured steps and acceptance: theorem 3.8, generalised. Pure.

Streams are a mixture of the workloads. A request is the step with its prompt, which brings its first token, and the
steps after it. Meanwhile a prompt of each other stream makes one of these steps longer.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.arms import NONE
from vllm_spec_tools.bench.curves import StepCurve, drafting_seconds, step_curve
from vllm_spec_tools.bench.records import EngineStep, LoadAnswer, LoadRequest, LoadRun
from vllm_spec_tools.planner.candidates import TREE, Candidate
from vllm_spec_tools.planner.generalised import conditional_rates


@dataclass(frozen=True)
class Workload:
    """Requests of one kind and temperature.

    Attributes:
        name: of the kind, with the temperature where the kind has several.
        share: of all requests.
        num_tokens: output tokens of each, on average, or at most if it has a schema.
    """

    name: str
    share: float
    num_tokens: int
    requests: tuple[LoadRequest, ...]


def workloads_of(requests: Sequence[LoadRequest]) -> tuple[Workload, ...]:
    """Returns the traffic by kind and temperature, in order of appearance; each request counts alike."""
    groups: dict[tuple[str, float], list[LoadRequest]] = {}
    for request in requests:
        groups.setdefault((request.kind, request.temperature), []).append(request)
    kinds = [kind for kind, _ in groups]
    return tuple(
        Workload(
            kind if kinds.count(kind) == 1 else f"{kind}, T = {temperature:g}",
            len(own) / len(requests),
            round(statistics.fmean(request.num_tokens for request in own)),
            tuple(own),
        )
        for (kind, temperature), own in groups.items()
    )


@dataclass(frozen=True)
class Acceptance:
    """Counts over decode steps.

    Attributes:
        request_steps: steps of requests, without those with their prompts.
        drafts: number of drafts; suffixes have none where nothing matches.
        accepted: number of accepted draft tokens by position, in trees by level.
    """

    request_steps: int
    drafts: int
    accepted: tuple[int, ...]

    @classmethod
    def of(cls, answers: Iterable[LoadAnswer], positions: int) -> Self:
        """Adds up jobs whose drafts have at most `positions` tokens in sequence."""
        request_steps = drafts = 0
        accepted = [0] * positions
        for phase in (phase for answer in answers for phase in answer.phases):
            request_steps += phase.progress.request_steps - len(phase.progress.outputs)
            drafts += phase.num_drafts
            for position, count in enumerate(phase.accepted_by_position[:positions]):
                accepted[position] += count
        return cls(request_steps, drafts, tuple(accepted))

    @property
    def draft_share(self) -> float:
        """Returns the share of request-steps with a draft."""
        return min(self.drafts / self.request_steps, 1.0) if self.request_steps else 0.0

    @property
    def reached(self) -> list[float]:
        """Returns accepted tokens per request-step by position, requests without drafts included."""
        return [count / self.request_steps if self.request_steps else 0.0 for count in self.accepted]

    @property
    def rates(self) -> list[float]:
        """Returns alpha by position: the share accepted where all earlier positions were."""
        return conditional_rates([count / self.drafts if self.drafts else 0.0 for count in self.accepted])

    @property
    def length(self) -> float | None:
        """Returns 1 + accepted / drafts; None without drafts."""
        return 1 + sum(self.accepted) / self.drafts if self.drafts else None

    @property
    def tokens_per_step(self) -> float:
        """Returns output tokens per request and step, with and without drafts."""
        return 1 + sum(self.reached)


@dataclass(frozen=True)
class Load:
    """A workload's share and mean output tokens, and a candidate's acceptance in it by measured draft length."""

    share: float
    num_tokens: float
    by_length: Mapping[int, Acceptance]

    def acceptance(self, tokens: int) -> Acceptance:
        """As measured with that length or the next longer one."""
        return self.by_length[min(length for length in self.by_length if length >= tokens)]


@dataclass(frozen=True)
class Costs:
    """Costs of a candidate's steps at one concurrency, and of those without speculation, in seconds.

    Attributes:
        concurrency: requests at once, B.
        plain_step: of a step with one token per request, without speculation.
        plain_prompt: by how much a prompt makes steps longer, without speculation.
        prompt: the same, with what the proposer does of it.
        drafting: of a step, by measured draft length.
    """

    concurrency: int
    plain_step: float
    plain_prompt: float
    prompt: float
    curve: StepCurve
    drafting: Mapping[int, float]

    def drafting_of(self, tokens: int) -> float:
        """Interpolates; no tokens cost nothing."""
        return float(np.interp(tokens, list(self.drafting), list(self.drafting.values()))) if tokens else 0.0

    def request(self, steps: float, step: float, prompt: float) -> float:
        """Returns the time from sending a request to its end."""
        return (1 + steps) * step + self.concurrency * prompt


@dataclass(frozen=True)
class Prediction:
    """Expected speed of a candidate with one draft length at one concurrency.

    Attributes:
        tokens: the draft length, of a tree its size; 0 is none.
        decode_speedup: of the steps alone, which is theorem 3.8 with measured costs and acceptance.
        speedup: of tokens per second, prompts included.
    """

    tokens: int
    tokens_per_step: float
    step_seconds: float
    draft_seconds: float
    decode_speedup: float
    speedup: float


def predict(costs: Costs, loads: Sequence[Load], tokens: int) -> Prediction:
    """Predicts the speed with a draft length; 0 is no speculation."""
    plain_steps = sum(load.share * (load.num_tokens - 1) for load in loads)
    if not tokens:
        return Prediction(0, 1.0, costs.plain_step, 0.0, 1.0, 1.0)
    accepted = [load.acceptance(tokens) for load in loads]
    gains = [sum(found.reached[:tokens]) for found in accepted]
    # Steps of the workloads' requests: more where fewer drafts are accepted.
    parts = [load.share * (load.num_tokens - 1) / (1 + gain) for load, gain in zip(loads, gains, strict=True)]
    steps = sum(parts)
    draft_share = sum(part * found.draft_share for part, found in zip(parts, accepted, strict=True)) / steps
    drafting, per_step = costs.drafting_of(tokens), plain_steps / steps
    step = _verifying(costs, tokens, draft_share) + drafting
    plain = costs.request(plain_steps, costs.plain_step, costs.plain_prompt)
    speedup = plain / costs.request(steps, step, costs.prompt)
    return Prediction(tokens, per_step, step, drafting, per_step * costs.plain_step / step, speedup)


def _verifying(costs: Costs, length: int, draft_share: float) -> float:
    """Expected seconds of a target step whose requests each have a draft with that probability."""
    batch = costs.concurrency
    return math.fsum(
        math.comb(batch, count)
        * draft_share**count
        * (1 - draft_share) ** (batch - count)
        * costs.curve.at(batch + count * length)
        for count in range(batch + 1)
    )


@dataclass(frozen=True)
class Forecast:
    """Expected speed of a candidate.

    Attributes:
        acceptance: by workload and measured draft length.
        costs: by concurrency.
        all: by concurrency, without drafts first, then with every draft length from 1, or with the tree.
    """

    candidate: Candidate
    acceptance: dict[str, dict[int, Acceptance]]
    costs: dict[int, Costs]
    all: dict[int, list[Prediction]]

    @cached_property
    def best(self) -> dict[int, Prediction]:
        """Returns the fastest by concurrency, with the least tokens of equals."""
        return {level: max(found, key=lambda one: one.speedup) for level, found in self.all.items()}

    @cached_property
    def drafting(self) -> dict[int, Prediction]:
        """Returns the fastest with drafts by concurrency, whether they pay or not."""
        return {level: max(found[1:], key=lambda one: one.speedup) for level, found in self.all.items()}

    @property
    def score(self) -> tuple[float, float]:
        """Mean speedup over the levels, each of which counts alike; then that with drafts at all of them.

        The mean is the geometric one, as speedups multiply.
        """
        means = [statistics.geometric_mean(p.speedup for p in found.values()) for found in (self.best, self.drafting)]
        return means[0], means[1]

    @property
    def tokens(self) -> int:
        """Returns the most that pays at any level; 0 if nothing does."""
        return max(prediction.tokens for prediction in self.best.values())

    @property
    def nextn(self) -> tuple[int, float] | None:
        """AIConfigurator's `nextn` and `nextn_accepted`: draft length, mean accepted draft tokens per step.

        The draft length is that of `tokens`, or the fastest one if nothing pays here. A tree has none.
        """
        if self.candidate.name == TREE:
            return None
        drafting = max(self.drafting.values(), key=lambda one: one.speedup)
        predictions = next(iter(self.all.values()))  # acceptance is that of all levels
        length = self.tokens or drafting.tokens
        return length, min(predictions[length].tokens_per_step - 1, length)


class Measured:
    """Passes of an engine's arms and of no speculation, in turns: requests sent at once, with their steps."""

    def __init__(self, runs: Iterable[LoadRun]) -> None:
        """Takes the runs; their steps are recorded."""
        self._runs = list(runs)

    def answers(self, arm: str | None, level: int | None = None, workload: str | None = None) -> list[LoadAnswer]:
        """Returns the results of an arm, or of all that draft, at one concurrency and in one workload, or at all."""
        return [
            run.answer
            for run in self._runs
            if (run.arm != NONE if arm is None else run.arm == arm)
            and level in (None, run.cell[1])
            and workload in (None, run.cell[0])
        ]

    def steps(self, arm: str | None, level: int) -> list[EngineStep]:
        """Returns the steps of an arm, or of all that draft."""
        return [step for answer in self.answers(arm, level) for step in answer.steps]

    def plain_step(self, level: int) -> float:
        """Median seconds of a step with one token per request, without speculation.

        Raises:
            UserError: there are no steps of whole batches.
        """
        return self._curve(NONE, level).at(level)

    def curve(self, level: int) -> StepCurve:
        """Returns the target's step by tokens, over all arms that draft.

        Raises:
            UserError: there are no steps of whole batches.
        """
        found = self._curve(None, level)
        if found.tokens[0] > level:
            # Drafts were always there.
            plain = min(self.plain_step(level), found.seconds[0])
            return StepCurve((level, *found.tokens), (plain, *found.seconds))
        return found

    def _curve(self, arm: str | None, level: int) -> StepCurve:
        found = step_curve(self.steps(arm, level), level)
        if found is None:
            raise UserError(f"no step had {level} requests at once; allowed: more --request-tokens or max_tokens")
        return found

    def prompt(self, arm: str, level: int, step: float) -> float:
        """Returns by how many seconds a request's prompt makes steps longer that else take `step` seconds."""
        answers = self.answers(arm, level)
        extra = sum(taken.seconds - step for answer in answers for taken in answer.steps if taken.in_prompt)
        return max(extra, 0.0) / (len(answers) * level)

    def num_tokens(self, workload: str) -> float:
        """Mean output tokens of a workload's requests, which schemas may end."""
        phases = (phase for answer in self.answers(NONE, workload=workload) for phase in answer.phases)
        return statistics.fmean(len(output.token_ids) for phase in phases for output in phase.progress.outputs)


def forecasts(
    measured: Measured, candidates: Sequence[Candidate], workloads: Sequence[Workload], levels: Sequence[int]
) -> Iterator[Forecast]:
    """Forecasts each candidate of an engine.

    Raises:
        UserError: there are no steps of whole batches.
    """
    for candidate in candidates:
        acceptance = {one.name: _acceptance(measured, candidate, one.name) for one in workloads}
        loads = [Load(one.share, measured.num_tokens(one.name), acceptance[one.name]) for one in workloads]
        costs = {level: _costs(measured, candidate, loads, level) for level in levels}
        predictions = {
            level: [predict(cost, loads, tokens) for tokens in (0, *candidate.choices)] for level, cost in costs.items()
        }
        yield Forecast(candidate, acceptance, costs, predictions)


def _acceptance(measured: Measured, candidate: Candidate, workload: str) -> dict[int, Acceptance]:
    return {k: Acceptance.of(measured.answers(candidate.arm(k), None, workload), k) for k in candidate.lengths}


def _costs(measured: Measured, candidate: Candidate, loads: Sequence[Load], level: int) -> Costs:
    plain = measured.plain_step(level)
    taken = {k: drafting_seconds(measured.steps(candidate.arm(k), level), level) for k in candidate.lengths}
    drafting = {k: seconds for k, seconds in taken.items() if seconds is not None} or {candidate.lengths[-1]: 0.0}
    costs = Costs(level, plain, 0.0, 0.0, measured.curve(level), drafting)
    # Prompts of all lengths alike: those of the longest drafts tell how much longer a step with one is.
    longest = candidate.lengths[-1]
    usual = predict(costs, loads, longest).step_seconds
    prompts = measured.prompt(NONE, level, plain), measured.prompt(candidate.arm(longest), level, usual)
    return Costs(level, plain, *prompts, costs.curve, drafting)
