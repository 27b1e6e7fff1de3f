"""Settings of the acceptance test, its verdicts and its report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtests.options import prompts_of
from vllm_spec_tools.engines.serving import runs_on_cpu
from vllm_spec_tools.report import Report, Table


@dataclass(frozen=True)
class Settings:
    """Settings of all parts.

    Attributes:
        users: most users of a load profile.
    """

    config: Path
    users: int
    processes: int
    seconds: float
    chaos_seconds: float
    out: Path
    console: Console
    ranks: int = 1

    @property
    def server_arguments(self) -> tuple[str, ...]:
        """Arguments of `vllm serve` for the servers with speculation."""
        return ("--tensor-parallel-size", str(self.ranks)) if self.ranks > 1 else ()

    @property
    def server_environment(self) -> dict[str, str]:
        """Variables for these servers: on a CPU without a memory node per rank, each rank needs a core of its own."""
        if self.ranks == 1 or not runs_on_cpu():
            return {}
        cores = sorted(os.sched_getaffinity(0))[: self.ranks]
        return {"VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, cores)), "OMP_NUM_THREADS": "1"}

    def say(self, text: str) -> None:
        """Prints a line of progress."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    Attributes:
        passed: whether it passed.
    """

    part: str
    check: str
    passed: bool
    figures: str

    @property
    def outcome(self) -> str:
        """Whether the check passed, in a word."""
        return "passed" if self.passed else "FAILED"

    def __str__(self) -> str:
        return f"{self.part}: {self.check} ({self.figures})"


def report_of(verdicts: Sequence[Verdict], seconds: float, origin: Mapping[str, Any]) -> Report:
    """Makes the report; its data say `passed` if at least one check was made and all passed."""
    failed = [verdict for verdict in verdicts if not verdict.passed]
    counted = f"All {len(verdicts)} checks passed" if verdicts else "No check was made"
    if failed:
        counted = f"{len(failed)} of {len(verdicts)} checks failed"
    rows = [[one.part, one.check, one.outcome, one.figures] for one in verdicts]
    return Report(
        "loadtest acceptance",
        "A served engine under load and among faults",
        origin,
        [f"{counted}, {seconds:.0f} s."],
        [Table("Checks", ["part", "check", "outcome", "figures"], rows, text_columns=4)],
        problems=[f"FAILED {one}" for one in failed],
        data={
            "passed": bool(verdicts) and not failed,
            "seconds": round(seconds, 1),
            "checks": [asdict(one) for one in verdicts],
        },
    )


def texts(*scenarios: str) -> list[str]:
    """The completion prompts of some scenarios."""
    return [one.prompt for name in scenarios for one in prompts_of(name) if one.prompt is not None]
