"""The noise gate: runs jobs while other processes are idle, and repeats what they disturbed."""

import os
import statistics
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Protocol, TypeVar

# Of one core. Two threads that wait for each other at every operator feel much less than a whole core's work.
DISTURBING = 0.2
# An arm's OpenMP threads may spin this long after its last operator, on the next arm's cores.
_SETTLE_SECONDS = 0.3
_TICKS_PER_SECOND = 100
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # user, nice, system, interrupts, soft interrupts, stolen by the hypervisor


class Timed(Protocol):
    """Result of a job."""

    @property
    def cpu_seconds(self) -> float:
        """Seconds of all cores together that the job itself used."""
        ...


_Timed = TypeVar("_Timed", bound=Timed)


def busy_seconds(path: Path = Path("/proc/stat"), cores: Set[int] | None = None) -> float | None:
    """Returns the seconds that this process's cores together have worked since the machine started.

    Args:
        cores: numbers of the cores; None are those that this process may use, which its engines inherit.

    Returns:
        None where it is unknown.
    """
    try:
        wanted = {f"cpu{core}" for core in (os.sched_getaffinity(0) if cores is None else cores)}
        rows = [fields for fields in map(str.split, path.read_text().splitlines()) if fields and fields[0] in wanted]
        ticks = [int(fields[1 + index]) for fields in rows for index in _BUSY_FIELDS]
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return sum(ticks) / _TICKS_PER_SECOND if rows else None


class NoiseGate:
    """Runs jobs when other processes pause, and again if they did not, until its budget is spent."""

    def __init__(
        self,
        budget_s: float,
        *,
        busy: Callable[[], float | None] = busy_seconds,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Takes what it may cost."""
        self._budget_s = budget_s
        self._busy, self._clock, self._sleep = busy, clock, sleep

    def run(self, job: Callable[[], _Timed], *, repeats: bool = True) -> tuple[_Timed, float | None]:
        """Runs the job, if disturbed several times; returns the least disturbed result and the cores others used.

        Args:
            repeats: whether a disturbed job runs again; else the gate only waits before it.
        """
        best: tuple[_Timed, float | None] | None = None
        while True:
            self._settle()
            start, busy = self._clock(), self._busy()
            answer = job()
            seconds = self._clock() - start
            others = self._others(busy, answer.cpu_seconds, seconds)
            if best is None or (others or 0.0) < (best[1] or 0.0):
                best = answer, others
            if (best[1] or 0.0) <= DISTURBING or self._budget_s <= 0 or not repeats:
                return best
            self._budget_s -= seconds

    def _settle(self) -> None:
        while True:
            start, busy = self._clock(), self._busy()
            self._sleep(_SETTLE_SECONDS)
            seconds = self._clock() - start
            # The arms are idle: what works is another process.
            if (self._others(busy, 0.0, seconds) or 0.0) <= DISTURBING or self._budget_s <= 0:
                return
            self._budget_s -= seconds

    def _others(self, busy_before: float | None, own_seconds: float, seconds: float) -> float | None:
        busy = self._busy()
        if busy is None or busy_before is None:
            return None
        return max(busy - busy_before - own_seconds, 0.0) / seconds


def disturbance_notes(others: Sequence[float]) -> list[str]:
    """Says how many cores other processes used while the runs that count ran; nothing where that is not known."""
    if not others:
        return []
    median, most = statistics.median(others), max(others)
    return [f"Other processes used {median:.2f} cores meanwhile (median of the runs; {most:.2f} at most)."]
