"""Throughput over time where the text turns, and how soon an arm is near the best again."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_spec_tools.bench.load.workloads import SWITCHES, WINDOW
from vllm_spec_tools.bench.records import LoadRun, Progress

# Of the best arm's tokens per second.
RECOVERED = 0.9


@dataclass(frozen=True)
class SwitchPhase:
    """A phase of the workload.

    Attributes:
        rates: by arm, tokens per second of all streams in each window; medians of the rounds.
        best: the arm that was through with the phase first; median of the rounds.
        recovered: by arm, output tokens per stream before the first window in which, and in the one after, it is no
            more than a tenth slower than the best arm in the same windows; None where there is none.
    """

    kind: str
    rates: dict[str, list[float]]
    best: str
    recovered: dict[str, int | None]


def window_rates(progress: Progress, tokens: int) -> list[float]:
    """Tokens per second of each `tokens` output tokens; what is left at the end is left out.

    A step brings several tokens at once; they are spread evenly over its time.
    """
    points = [(0, 0.0), *zip(progress.tokens, progress.seconds, strict=True)]
    moments, wanted = [], 0
    for (before, start), (after, end) in pairwise(points):
        while wanted <= after:
            moments.append(start + (end - start) * (wanted - before) / (after - before))
            wanted += tokens
    return [tokens / (end - start) for start, end in pairwise(moments)]


def recovered_after(ours: Sequence[float], best: Sequence[float]) -> int | None:
    """Tokens per stream before the first two windows, or the last one, that are within reach of the best; or None."""
    near = [own >= RECOVERED * other for own, other in zip(ours, best, strict=False)]
    for i, is_near in enumerate(near):
        if is_near and all(near[i : i + 2]):
            return i * WINDOW
    return None


def switch_phases(runs: Sequence[LoadRun], arms: Sequence[str]) -> list[SwitchPhase]:
    """Sums the rounds up."""
    phases = []
    for number, kind in enumerate(SWITCHES):
        rates: dict[str, list[float]] = {}
        whole: dict[str, float] = {}
        for arm in arms:
            own = [(run.cell[1], run.answer.phases[number].progress) for run in runs if run.arm == arm]
            windows = [window_rates(progress, WINDOW * streams) for streams, progress in own]
            rates[arm] = [statistics.median(rounds) for rounds in zip(*windows, strict=False)]
            whole[arm] = statistics.median(progress.tokens_per_second for _, progress in own)
        best = max(whole, key=lambda arm: whole[arm])
        recovered = {arm: recovered_after(windows, rates[best]) for arm, windows in rates.items()}
        phases.append(SwitchPhase(kind, rates, best, recovered))
    return phases
