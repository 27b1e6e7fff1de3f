"""Forecasts every candidate's speed from measurements. Pure."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vllm_spec_plugin.proposers.medusa.best_tree import Accuracy, Path, best_choices, expected_acceptance_length
from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, HeadsConfig
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.curves import DraftingCost, StepCurve, drafting_cost, drafting_seconds, step_curve
from vllm_spec_tools.bench.records import EngineStep
from vllm_spec_tools.planner.candidates import NONE, Candidate, MeasuredCandidate, Sample, Setting
from vllm_spec_tools.planner.predicting import Acceptance, Costs, Load, Prediction, fastest, predict
from vllm_spec_tools.planner.traffic import Workload


@dataclass(frozen=True)
class Forecast:
    """Expected speed of a candidate.

    Attributes:
        all: by concurrency, without drafts first, then with every draft length from 1, or with the tree.
    """

    candidate: Candidate
    costs: dict[int, Costs]
    all: dict[int, list[Prediction]]

    @cached_property
    def best(self) -> dict[int, Prediction]:
        """Returns the fastest by concurrency, with the least tokens of equals."""
        return {level: fastest(found) for level, found in self.all.items()}

    @cached_property
    def drafting(self) -> dict[int, Prediction]:
        """Returns the fastest with drafts by concurrency, whether they pay or not."""
        return {level: fastest(found[1:]) for level, found in self.all.items()}

    @property
    def score(self) -> float:
        """Mean speedup over the levels, each of which counts alike: the geometric one, as speedups multiply."""
        return statistics.geometric_mean(prediction.speedup for prediction in self.best.values())

    @property
    def nearest(self) -> float:
        """Returns the same with drafts at every level, whether they pay or not."""
        return statistics.geometric_mean(prediction.speedup for prediction in self.drafting.values())

    @property
    def tokens(self) -> int:
        """Returns the most that pays at any level; 0 if nothing does."""
        return max(prediction.tokens for prediction in self.best.values())


def forecasts(measured: MeasuredCandidate, workloads: Sequence[Workload], levels: Sequence[int]) -> Iterator[Forecast]:
    """Forecasts each candidate of an engine.

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


def pooled_curve(measured: MeasuredCandidate, level: int) -> StepCurve:
    """Returns the target's step by tokens in an engine, over all its candidates.

    Without drafts it is that of the engine without speculation.

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


def steps_of(samples: Iterable[Sample]) -> list[EngineStep]:
    """All steps of some jobs."""
    return [step for sample in samples for step in sample.answer.steps]


def acceptance_of(
    measured: MeasuredCandidate, candidate: Candidate, tokens: int, workload: str | None = None
) -> Acceptance:
    """Counts the acceptance of drafts of that length, in one workload or in all, at all levels together."""
    samples = measured.of(candidate.name, tokens=tokens)
    answers = [sample.answer for sample in samples if workload in (None, sample.workload)]
    return Acceptance.of(answers, tokens)


def drafting_by_length(measured: MeasuredCandidate, candidate: Candidate, level: int) -> DraftingCost:
    """Measures the cost of drafting in a step of a whole batch."""
    taken: dict[int, float] = {}
    for tokens in candidate.lengths:
        seconds = drafting_seconds(steps_of(measured.of(candidate.name, level, tokens)), level)
        if seconds is not None:
            taken[tokens] = seconds
    return drafting_cost(taken or {candidate.lengths[-1]: 0.0})


def _costs(measured: MeasuredCandidate, candidate: Candidate, loads: Sequence[Load], level: int) -> Costs:
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


def _load(measured: MeasuredCandidate, candidate: Candidate, workload: Workload) -> Load:
    by_length = {tokens: acceptance_of(measured, candidate, tokens, workload.name) for tokens in candidate.lengths}
    return Load(workload.share, _num_tokens(measured, workload), by_length)


def _num_tokens(measured: MeasuredCandidate, workload: Workload) -> float:
    """Mean output tokens of a workload's requests: schemas end them."""
    if not workload.schemas:
        return workload.num_tokens
    phases = (
        phase for sample in measured.of(NONE) if sample.workload == workload.name for phase in sample.answer.phases
    )
    return statistics.fmean(len(output.token_ids) for phase in phases for output in phase.progress.outputs)


def _with_prompt(measured: MeasuredCandidate, setting: Setting, level: int) -> float:
    """Median seconds of a step with a prompt."""
    found = measured.first_token_seconds(setting, level)
    if not found:
        raise UserError(f"no request joined {level - 1} others; allowed: fewer --output-tokens")
    return statistics.median(found)


def _predictions(candidate: Candidate, costs: Costs, loads: Sequence[Load]) -> list[Prediction]:
    """Without drafts, and with each number of draft tokens to choose from."""
    return [predict(costs, loads, tokens, is_tree=candidate.is_tree) for tokens in (0, *candidate.choices)]


class NoTreeError(ValueError):
    """There is no tree to measure; str() says why."""


@dataclass(frozen=True)
class Chained:
    """Acceptance of the heads' chains in a workload.

    Attributes:
        paths: probabilities of ranks together, as the heads say, for requests of this temperature.
    """

    share: float
    accuracy: Accuracy
    paths: Mapping[Path, float]
    length: int
    tokens_per_step: float

    def choices(self, size: int) -> tuple[Path, ...]:
        """Returns the best tree per number of tokens."""
        return best_choices(size, len(self.accuracy), self.accuracy, self.paths)

    def expected(self, choices: Sequence[Path]) -> float:
        """Tokens per step that a tree is expected to give here.

        What the heads forecast of it, scaled by what their chain does here over what they promise of that.
        """
        chain = [(0,) * depth for depth in range(1, self.length + 1)]
        promised = expected_acceptance_length(chain, self.accuracy, self.paths) - 1
        fit = (self.tokens_per_step - 1) / promised if promised else 0.0
        return 1 + fit * (expected_acceptance_length(choices, self.accuracy, self.paths) - 1)


def tree_size(
    heads: HeadsConfig, measured: MeasuredCandidate, workloads: Sequence[Workload], levels: Sequence[int], most: int
) -> int:
    """Returns the size whose best tree promises most.

    Raises:
        NoTreeError: the heads do not say how accurate they are, or a chain is as good as any tree.
    """
    if heads.accuracy is None:
        raise NoTreeError(
            "Medusa trees were not measured: the heads do not say how accurate they are "
            "(`vllm-spec train-medusa --from HEADS --steps 0` measures it)."
        )
    (candidate,) = measured.engine.candidates
    length = candidate.lengths[-1]
    chained = []
    for workload in workloads:
        paths = dict((heads.paths or {}).get(DRAWN if workload.temperature else GREEDY, {}))
        found = acceptance_of(measured, candidate, length, workload.name)
        chained.append(Chained(workload.share, heads.accuracy, paths, length, found.tokens_per_step))
    size = best_tree_size(chained, {level: pooled_curve(measured, level) for level in levels}, most)
    if all(not any(any(path) for path in one.choices(size)) for one in chained):
        raise NoTreeError(f"Medusa trees were not measured: with what steps cost, the best is a chain of {size}.")
    return size


def best_tree_size(chained: Sequence[Chained], curves: Mapping[int, StepCurve], most: int) -> int:
    """Returns the number of tokens whose best tree promises most tokens per second, all levels counting alike.

    Args:
        chained: per workload; at least one.
        curves: seconds of a target step by tokens, by concurrency.
        most: tokens of a tree, at least 1.
    """

    def worth(size: int) -> float:
        tokens = sum(one.share * one.expected(one.choices(size)) for one in chained)
        return sum(math.log(tokens / curve.at(level * (1 + size))) for level, curve in curves.items())

    return max(range(1, most + 1), key=worth)
