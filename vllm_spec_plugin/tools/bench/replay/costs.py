"""Measured seconds of steps as curves: by requests, tokens and drafts."""

import json
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import TypeAdapter

from vllm_spec_plugin.tools.bench.curves import StepCurve, step_curve, whole_steps
from vllm_spec_plugin.tools.bench.records import Step

# Quantiles that a distribution of noise is kept as.
_QUANTILES = 65


class Sample(NamedTuple):
    """The steps of one batch with one draft length.

    Attributes:
        proposer: index of the only proposer that drafts; None is an engine without speculation.
        num_requests: requests of the batch.
        num_tokens: most draft tokens per request; 0 is none.
        steps: all steps of the batch.
        num_prompt_tokens: tokens of all its prompts.
    """

    proposer: int | None
    num_requests: int
    num_tokens: int
    steps: Sequence[Step]
    num_prompt_tokens: int


@dataclass(frozen=True)
class Costs:
    """Seconds of steps, by number of requests; what lies between measured numbers is interpolated.

    Attributes:
        plain: of an engine without speculation, a step of one token per request.
        idle: of an engine with the plugin, the same step, with nothing drafted.
        drafted: with the plugin, a step that verifies drafts, without its own drafting: a curve over its tokens.
        hidden: of preparing a proposer's input, in steps that draft.
        drafting: per proposer, number of requests that it drafts for and longest draft.
        catch_up: per proposer, of a text token that it computes beyond one per draft.
        noise: quantiles of a step's seconds over their median, rising.
        drafting_noise: the same of drafting.
        probe: the start-up probe's measurements of the target's steps, as (tokens, seconds).
    """

    plain: dict[int, float]
    idle: dict[int, float]
    drafted: dict[int, StepCurve]
    hidden: dict[int, float]
    drafting: tuple[dict[int, dict[int, float]], ...]
    catch_up: tuple[float, ...]
    noise: tuple[float, ...]
    drafting_noise: tuple[float, ...]
    probe: tuple[tuple[int, float], ...]

    def without_plugin(self, num_requests: int, num_tokens: int) -> float:
        """Seconds of a step without speculation; more tokens than requests are of prompts."""
        return _between(self.plain, num_requests) + self._more(num_requests, num_tokens)

    def target(self, num_requests: int, num_tokens: int, *, has_drafts: bool) -> float:
        """Seconds of a step with the plugin, drafting left out."""
        if has_drafts:
            return _between(
                {n: curve.at(n * num_tokens / num_requests) for n, curve in self.drafted.items()}, num_requests
            )
        return _between(self.idle, num_requests) + self._more(num_requests, num_tokens)

    def preparing(self, num_requests: int) -> float:
        """Seconds of preparing the input of proposers."""
        return _between(self.hidden, num_requests)

    def proposing(self, proposer: int, num_requests: int, longest: int, num_caught_up: int) -> float:
        """Seconds of a proposer that drafts up to `longest` tokens for each of `num_requests`."""
        seconds = self.catch_up[proposer] * num_caught_up
        if num_requests and longest:
            of_length = {n: _between(lengths, longest) for n, lengths in self.drafting[proposer].items()}
            seconds += _between(of_length, num_requests)
        return seconds

    def _more(self, num_requests: int, num_tokens: int) -> float:
        """Seconds that tokens beyond one per request add."""
        if num_tokens <= num_requests:
            return 0.0
        by_requests = {n: curve.at(n * num_tokens / num_requests) - curve.at(n) for n, curve in self.drafted.items()}
        return max(_between(by_requests, num_requests), 0.0)

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it, rounded to a tenth of a microsecond."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_float=lambda text: round(float(text), 7))
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what `to_json` gives, from JSON."""
        return TypeAdapter(cls).validate_python(values)


def costs_of(samples: Sequence[Sample], num_proposers: int, probe: Sequence[tuple[int, float]]) -> Costs:
    """Curves through the medians of measured steps.

    Args:
        samples: for each number of requests an engine without speculation, each proposer with several draft lengths,
            and one of them with none.
        num_proposers: how many proposers there are.
        probe: the start-up probe's measurements.
    """
    levels = sorted({sample.num_requests for sample in samples})
    plain, idle, hidden = {}, {}, {}
    drafted: dict[int, StepCurve] = {}
    noise: list[float] = []
    drafting_noise: list[float] = []
    drafting: tuple[dict[int, dict[int, float]], ...] = tuple({n: {} for n in levels} for _ in range(num_proposers))
    per_token: list[list[float]] = [[] for _ in range(num_proposers)]
    for level in levels:
        own = [sample for sample in samples if sample.num_requests == level]
        plain[level] = _median(_whole(own, level, is_plugin=False), noise)
        idle[level] = _median([step for step in _whole(own, level, is_plugin=True) if step.num_tokens == level], noise)
        with_drafts = [step for step in _whole(own, level, is_plugin=True) if step.num_tokens > level]
        curve = step_curve(with_drafts, level)
        if curve is None:
            raise ValueError(f"no step of {level} requests verified a draft")
        drafted[level] = _from(level, idle[level], curve)
        hidden[level] = statistics.median(step.drafting_seconds - step.proposer_seconds for step in with_drafts)
        for sample in own:
            if sample.proposer is None or not sample.num_tokens:
                continue
            times = [step.proposer_seconds for step in whole_steps(sample.steps, level)]
            usual = statistics.median(times)
            drafting[sample.proposer][level][sample.num_tokens] = usual
            drafting_noise += [seconds / usual for seconds in times if usual]
            prompts = sum(step.proposer_seconds - usual for step in sample.steps if step.in_prompt)
            per_token[sample.proposer].append(max(prompts, 0.0) / sample.num_prompt_tokens)
    catch_up = tuple(statistics.median(values) for values in per_token)
    return Costs(
        plain, idle, drafted, hidden, drafting, catch_up, _quantiles(noise), _quantiles(drafting_noise), tuple(probe)
    )


def _from(num_requests: int, idle: float, curve: StepCurve) -> StepCurve:
    """The curve continued to a step with hardly any drafts, which takes no less than one without."""
    (size, *sizes), (seconds, *others) = curve.tokens, curve.seconds
    slope = (others[0] - seconds) / (sizes[0] - size) if sizes else 0.0
    first = min(max(idle, seconds - slope * (size - num_requests)), seconds)
    return StepCurve((num_requests, *curve.tokens), (first, *curve.seconds))


def _whole(samples: Iterable[Sample], level: int, *, is_plugin: bool) -> list[Step]:
    """The steps of whole batches after their prompts."""
    return [
        step
        for sample in samples
        if (sample.proposer is not None) == is_plugin
        for step in whole_steps(sample.steps, level)
    ]


def _median(steps: Sequence[Step], noise: list[float]) -> float:
    times = [step.seconds - step.drafting_seconds for step in steps]
    usual = statistics.median(times)
    noise += [seconds / usual for seconds in times]
    return usual


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0, 1, _QUANTILES)).tolist()) if values else (1.0,)


def _between(by_number: Mapping[int, float], number: float) -> float:
    """Interpolates; beyond the ends by the slope of the last two, from below 0 on as 0."""
    numbers = sorted(by_number)
    if len(numbers) == 1:
        return by_number[numbers[0]]
    i = min(max(bisect_left(numbers, number), 1), len(numbers) - 1)
    left, right = numbers[i - 1], numbers[i]
    slope = (by_number[right] - by_number[left]) / (right - left)
    return max(by_number[left] + slope * (number - left), 0.0)
