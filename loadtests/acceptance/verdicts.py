"""Settings of the acceptance test, its verdicts and its summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtests.prompt_file import FOLDER, read_prompts


@dataclass(frozen=True)
class Settings:
    """Settings of all parts.

    Attributes:
        config: plugin.yaml to serve.
        users: most users of a load profile.
        processes: Locust's worker processes.
        seconds: length of a load profile.
        chaos_seconds: length of the chaos.
        out: folder for all files.
        console: console for progress.
    """

    config: Path
    users: int
    processes: int
    seconds: float
    chaos_seconds: float
    out: Path
    console: Console


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    Attributes:
        part: part of the test, such as "ramp".
        check: what must hold.
        passed: whether it holds.
        figures: what was measured.
    """

    part: str
    check: str
    passed: bool
    figures: str

    @property
    def word(self) -> str:
        """Whether the check passed, in rich's markup."""
        return "[green]passed[/green]" if self.passed else "[red]FAILED[/red]"

    def line(self) -> str:
        """The verdict as a line of rich's markup."""
        return f"{self.word}  {escape(self.part)}: {escape(self.check)} ({escape(self.figures)})"


def all_passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether at least one check was made and all passed."""
    return bool(verdicts) and all(verdict.passed for verdict in verdicts)


def summary_table(verdicts: Sequence[Verdict], seconds: float) -> Table:
    """One row per check; the title says whether all passed."""
    failed = sum(not verdict.passed for verdict in verdicts)
    outcome = f"{failed} of {len(verdicts)} checks failed" if failed else f"all {len(verdicts)} checks passed"
    table = Table(title=f"{outcome}, {seconds:.0f} s")
    for header in ("part", "check", "", "figures"):
        table.add_column(header)
    for verdict in verdicts:
        table.add_row(escape(verdict.part), escape(verdict.check), verdict.word, escape(verdict.figures))
    return table


def summary_json(verdicts: Sequence[Verdict], seconds: float, options: Mapping[str, Any]) -> str:
    """The summary as JSON."""
    body = {
        "schema": 1,
        "passed": all_passed(verdicts),
        "seconds": round(seconds, 1),
        "options": dict(options),
        "checks": [asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(body, indent=1) + "\n"


def texts(*scenarios: str) -> list[str]:
    """The completion prompts of some scenarios."""
    prompts = [prompt for name in scenarios for prompt in read_prompts(FOLDER / f"{name}.jsonl")]
    return [prompt.prompt for prompt in prompts if prompt.prompt is not None]
