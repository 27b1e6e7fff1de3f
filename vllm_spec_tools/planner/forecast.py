"""From what was measured to what is expected of every candidate. Pure."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.curves import DraftingCost, StepCurve, drafting_cost, drafting_seconds, step_curve
from vllm_spec_tools.bench.records import Step
from vllm_spec_tools.planner.acceptance import Acceptance
from vllm_spec_tools.planner.candidates import Candidate
from vllm_spec_tools.planner.predicting import Costs, Load, Prediction, fastest, predict
from vllm_spec_tools.planner.samples import NONE, Measured, Sample, Setting
from vllm_spec_tools.planner.traffic import Workload


@dataclass(frozen=True)
class Limits:
    """The best speedup if one thing were other than it is.

    Attributes:
        perfect: if every draft token were accepted.
        free_drafting: if drafting took no time.
        free_verifying: if a step took no longer for the drafts in it.
    """

    perfect: float
    free_drafting: float
    free_verifying: float


@dataclass(frozen=True)
class Forecast:
    """What is expected of a candidate.

    Attributes:
        costs: by concurrency.
        all: by concurrency, without drafts first, then with every draft length from 1, or with the tree.
        limits: by concurrency.
    """

    candidate: Candidate
    costs: dict[int, Costs]
    all: dict[int, list[Prediction]]
    limits: dict[int, Limits]

    @cached_property
    def best(self) -> dict[int, Prediction]:
        """The fastest by concurrency, with the least tokens of equals."""
        return {level: fastest(found) for level, found in self.all.items()}

    @cached_property
    def drafting(self) -> dict[int, Prediction]:
        """The fastest with drafts by concurrency, whether they pay or not."""
        return {level: fastest(found[1:]) for level, found in self.all.items()}

    @property
    def score(self) -> float:
        """Mean speedup over the levels, each of which counts alike: the geometric one, as speedups multiply."""
        return statistics.geometric_mean(prediction.speedup for prediction in self.best.values())

    @property
    def nearest(self) -> float:
        """The same with drafts at every level, whether they pay or not."""
        return statistics.geometric_mean(prediction.speedup for prediction in self.drafting.values())

    @property
    def tokens(self) -> int:
        """The most that pays at any level; 0 if nothing does."""
        return max(prediction.tokens for prediction in self.best.values())


def forecasts(measured: Measured, workloads: Sequence[Workload], levels: Sequence[int]) -> Iterator[Forecast]:
    """What is expected of each candidate of an engine.

    Raises:
        UserError: there are no steps of whole batches.
    """
    for candidate in measured.engine.candidates:
        loads = tuple(_load(measured, candidate, workload) for workload in workloads)
        costs = {level: _costs(measured, candidate, loads, level) for level in levels}
        yield Forecast(
            candidate,
            costs,
            {level: _predictions(candidate, cost, loads) for level, cost in costs.items()},
            {level: _limits(candidate, cost, loads) for level, cost in costs.items()},
        )


def plain_step(samples: Iterable[Sample], level: int) -> float:
    """Median seconds of a step with one token per request, without speculation.

    Raises:
        UserError: there are none.
    """
    curve = step_curve(steps_of(samples), level)
    if curve is None:
        raise UserError(
            f"no step had {level} requests at once; allowed: more --output-tokens, or prompts with more max_tokens"
        )
    return curve.at(level)


def pooled_curve(measured: Measured, level: int) -> StepCurve:
    """The target's step by tokens in an engine, over all its candidates; without drafts as the engine without them.

    Raises:
        UserError: there are no steps of whole batches.
    """
    plain = plain_step(measured.of(NONE, level), level)
    found = step_curve(steps_of(measured.at(level)), level)
    if found is None:
        raise UserError(f"no step of {measured.engine.name} had {level} requests at once; allowed: more tokens")
    if found.tokens[0] > level:
        # Drafts were always there.
        return StepCurve((level, *found.tokens), (min(plain, found.seconds[0]), *found.seconds))
    return found


def steps_of(samples: Iterable[Sample]) -> list[Step]:
    """All steps of some jobs."""
    return [step for sample in samples for step in sample.answer.steps]


def acceptance_of(measured: Measured, candidate: Candidate, tokens: int, workload: str | None = None) -> Acceptance:
    """How drafts of that length fared, in one workload or in all, at all levels together."""
    samples = measured.of(candidate.name, tokens=tokens)
    answers = [sample.answer for sample in samples if workload in (None, sample.workload)]
    return Acceptance.of(answers, tokens)


def drafting_by_length(measured: Measured, candidate: Candidate, level: int) -> DraftingCost:
    """What drafting takes in a step of a whole batch."""
    taken: dict[int, float] = {}
    for tokens in candidate.lengths:
        seconds = drafting_seconds(steps_of(measured.of(candidate.name, level, tokens)), level)
        if seconds is not None:
            taken[tokens] = seconds
    return drafting_cost(taken or {candidate.lengths[-1]: 0.0})


def _costs(measured: Measured, candidate: Candidate, loads: Sequence[Load], level: int) -> Costs:
    plain = plain_step(measured.of(NONE, level), level)
    curve, drafting = pooled_curve(measured, level), drafting_by_length(measured, candidate, level)
    costs = Costs(level, plain, 0.0, curve, drafting, 0.0)
    # A step with a prompt was measured with the longest drafts: by how much is it longer than others like it?
    longest = candidate.lengths[-1]
    usual = predict(costs, loads, longest, is_tree=candidate.is_tree).step_seconds
    return replace(
        costs,
        plain_prompt=max(_with_prompt(measured, Setting(NONE, 0), level) - plain, 0.0),
        prompt=max(_with_prompt(measured, Setting(candidate.name, longest), level) - usual, 0.0),
    )


def _load(measured: Measured, candidate: Candidate, workload: Workload) -> Load:
    by_length = {tokens: acceptance_of(measured, candidate, tokens, workload.name) for tokens in candidate.lengths}
    return Load(workload.share, workload.num_tokens, by_length)


def _with_prompt(measured: Measured, setting: Setting, level: int) -> float:
    """Median seconds of a step with a prompt."""
    found = measured.first_token_seconds(setting, level)
    if not found:
        raise UserError(f"no request joined {level - 1} others; allowed: fewer --output-tokens, or more --rounds")
    return statistics.median(found)


def _predictions(candidate: Candidate, costs: Costs, loads: Sequence[Load]) -> list[Prediction]:
    """Without drafts, and with each number of draft tokens to choose from."""
    return [predict(costs, loads, tokens, is_tree=candidate.is_tree) for tokens in (0, *candidate.choices)]


def _limits(candidate: Candidate, costs: Costs, loads: Sequence[Load]) -> Limits:
    def speedup(costs: Costs, loads: Sequence[Load]) -> float:
        return fastest(_predictions(candidate, costs, loads)).speedup

    flat = StepCurve((costs.concurrency,), (costs.plain_step,))
    return Limits(
        speedup(costs, [load.perfect for load in loads]),
        speedup(replace(costs, drafting=DraftingCost(0.0, 0.0)), loads),
        speedup(replace(costs, curve=flat), loads),
    )
