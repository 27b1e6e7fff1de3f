"""The same requests, as two clients measured them. Pure."""

import statistics
from collections.abc import Callable, Sequence
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
    fast it was, it is the clients' means as multiples of its own that are compared; else their medians and means.

    Args:
        part: of the test.
        concurrency: requests at once.
        ours: of these load tests' client, a run each.
        theirs: of `vllm bench serve`.
    """
    runs = [*ours, *theirs]
    same_work = len({(run.requests, run.tokens) for run in runs}) == 1 and not any(run.failed for run in runs)
    shown = [f"{name} ours {_shown(ours, name)}, vllm bench {_shown(theirs, name)} ms" for name in ("median", "mean")]
    if all(run.served for run in runs):
        ratios = [_ratio(ours, theirs, lambda run: run.mean / (run.served or 1))]
        shown.append(f"mean by the server itself {_shown(ours, 'served')}, {_shown(theirs, 'served')} ms")
        shown.append(f"ratio of the means over the server's {ratios[0]:.3f}")
    else:
        ratios = [_ratio(ours, theirs, lambda run: run.median), _ratio(ours, theirs, lambda run: run.mean)]
        shown.append(f"ratios {ratios[0]:.3f} and {ratios[1]:.3f}")
    if not same_work:
        shown.append(
            "requests, tokens, failed of each run: "
            + ", ".join(f"{run.requests} {run.tokens} {run.failed}" for run in runs)
        )
    passed = same_work and all(_LEAST <= ratio <= _MOST for ratio in ratios)
    return Verdict(part, f"TPOT at concurrency {concurrency} is that of vllm bench serve", passed, "; ".join(shown))


def _ratio(ours: Sequence[Tpot], theirs: Sequence[Tpot], figure: Callable[[Tpot], float]) -> float:
    return statistics.fmean(map(figure, ours)) / statistics.fmean(map(figure, theirs))


def _shown(runs: Sequence[Tpot], name: str) -> str:
    return " and ".join(f"{getattr(run, name):.2f}" for run in runs)
