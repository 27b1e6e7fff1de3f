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
    """

    median: float
    mean: float
    requests: int
    failed: int
    tokens: int


def tpot_check(part: str, concurrency: int, ours: Sequence[Tpot], theirs: Sequence[Tpot]) -> Verdict:
    """Whether both measured the same, over all runs.

    Args:
        part: of the test.
        concurrency: requests at once.
        ours: of these load tests' client, a run each.
        theirs: of `vllm bench serve`.
    """
    median, mean = (
        statistics.fmean(getattr(run, name) for run in ours) / statistics.fmean(getattr(run, name) for run in theirs)
        for name in ("median", "mean")
    )
    runs = [*ours, *theirs]
    same_work = len({(run.requests, run.tokens) for run in runs}) == 1 and not any(run.failed for run in runs)
    figures = (
        f"median ours {_shown(ours, 'median')}, vllm bench {_shown(theirs, 'median')} ms, ratio {median:.3f}; "
        f"mean ours {_shown(ours, 'mean')}, vllm bench {_shown(theirs, 'mean')} ms, ratio {mean:.3f}"
    )
    if not same_work:
        figures += "; requests, tokens, failed of each run: " + ", ".join(
            f"{run.requests} {run.tokens} {run.failed}" for run in runs
        )
    passed = same_work and all(_LEAST <= ratio <= _MOST for ratio in (median, mean))
    return Verdict(part, f"TPOT at concurrency {concurrency} is that of vllm bench serve", passed, figures)


def _shown(runs: Sequence[Tpot], name: str) -> str:
    return " and ".join(f"{getattr(run, name):.2f}" for run in runs)
