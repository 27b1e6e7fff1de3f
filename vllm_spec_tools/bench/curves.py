"""Computes the costs of steps from measured steps. Pure."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from vllm_spec_tools.bench.records import EngineStep

# Minimum number of steps of one size for its median to count.
_LEAST_STEPS = 3
# Share of the longest times that is left out: other processes caused them.
_CUT_SHARE = 0.02


@dataclass(frozen=True)
class StepCurve:
    """Seconds of a target step by the tokens that it computes, never fewer for more tokens.

    Attributes:
        tokens: sizes that were measured, rising; at least one.
        seconds: of each, not falling.
    """

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, tokens: float) -> float:
        """Interpolated; below the first size as there, beyond the last one by the mean slope."""
        span, beyond = self.tokens[-1] - self.tokens[0], max(tokens - self.tokens[-1], 0)
        slope = (self.seconds[-1] - self.seconds[0]) / span if span else 0.0
        return float(np.interp(tokens, self.tokens, self.seconds)) + slope * beyond


def whole_steps(steps: Iterable[EngineStep], num_requests: int) -> Iterator[EngineStep]:
    """Yields the steps that hold all of a job's requests, and none of their prompts."""
    return (step for step in steps if not step.in_prompt and step.num_requests == num_requests)


def step_curve(steps: Iterable[EngineStep], num_requests: int) -> StepCurve | None:
    """Medians by size, made monotone; None if there are no such steps."""
    times: dict[int, list[float]] = {}
    for step in whole_steps(steps, num_requests):
        times.setdefault(step.num_tokens, []).append(step.seconds - step.drafting_seconds)
    least = min(_LEAST_STEPS, max(map(len, times.values()), default=0))
    found = {size: times[size] for size in sorted(times) if len(times[size]) >= least}
    if not found:
        return None
    medians, counts = zip(*((statistics.median(seconds), len(seconds)) for seconds in found.values()), strict=True)
    return StepCurve(tuple(found), tuple(isotonic_regression(medians, weights=counts).x.tolist()))


def drafting_seconds(steps: Iterable[EngineStep], num_requests: int) -> float | None:
    """Mean seconds of a step's drafting, its outliers left out; None if there are no such steps.

    A mean, as some steps have drafts of a cheap proposer, some of an expensive one, and some none.
    """
    times = sorted(step.drafting_seconds for step in whole_steps(steps, num_requests))
    return statistics.fmean(times[: len(times) - int(_CUT_SHARE * len(times))]) if times else None
