"""The same requests, as two clients measured them. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.acceptance.verdicts import Verdict

_LEAST, _MOST = 0.9, 1.1


@dataclass(frozen=True)
class Tpot:
    """Time per output token of one run, over its requests, in milliseconds.

    Attributes:
        median: of the requests.
        mean: of the requests.
        requests: that were answered.
        failed: that were not.
        tokens: of all outputs.
        served: mean of all requests that ended in the meantime by the server's own clock, which no slow client is in;
            None if it does not tell.
    """

    median: float
    mean: float
    requests: int
    failed: int
    tokens: int
    served: float | None = None


def tpot_check(part: str, concurrency: int, ours: Sequence[Tpot], theirs: Sequence[Tpot]) -> Verdict:
    """Whether both measured the same, over all runs.

    How fast the server is differs by a fifth from one run of a few seconds to the next. Where the server tells how
    fast it was, each run's figures are taken as multiples of that.

    Args:
        part: of the test.
        concurrency: requests at once.
        ours: of these load tests' client, a run each.
        theirs: of `vllm bench serve`.
    """
    runs = [*ours, *theirs]
    is_told = all(run.served for run in runs)
    median, mean = (
        statistics.fmean(_figure(run, name, is_told) for run in ours)
        / statistics.fmean(_figure(run, name, is_told) for run in theirs)
        for name in ("median", "mean")
    )
    same_work = len({(run.requests, run.tokens) for run in runs}) == 1 and not any(run.failed for run in runs)
    figures = "; ".join(
        f"{name} ours {_shown(ours, name)}, vllm bench {_shown(theirs, name)} ms, ratio {ratio:.3f}"
        for name, ratio in (("median", median), ("mean", mean))
    )
    if is_told:
        figures += f"; ratios over the server's own means, {_shown(ours, 'served')} and {_shown(theirs, 'served')} ms"
    if not same_work:
        figures += "; requests, tokens, failed of each run: " + ", ".join(
            f"{run.requests} {run.tokens} {run.failed}" for run in runs
        )
    passed = same_work and all(_LEAST <= ratio <= _MOST for ratio in (median, mean))
    return Verdict(part, f"TPOT at concurrency {concurrency} is that of vllm bench serve", passed, figures)


def _figure(run: Tpot, name: str, is_told: bool) -> float:
    milliseconds: float = getattr(run, name)
    return milliseconds / run.served if is_told and run.served else milliseconds


def _shown(runs: Sequence[Tpot], name: str) -> str:
    return " and ".join(f"{getattr(run, name):.2f}" for run in runs)
