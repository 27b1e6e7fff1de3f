"""What was checked, and how it came out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Verdict:
    """A check that was made.

    Attributes:
        part: of the test, such as "ramp".
        check: what is to be.
        passed: whether it is so.
        figures: what was seen.
    """

    part: str
    check: str
    passed: bool
    figures: str

    @property
    def word(self) -> str:
        """Whether it passed, in rich's markup."""
        return "[green]passed[/green]" if self.passed else "[red]FAILED[/red]"

    def line(self) -> str:
        """All of it in a line of rich's markup."""
        return f"{self.word}  {escape(self.part)}: {escape(self.check)} ({escape(self.figures)})"


def all_passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether something was checked, and nothing failed."""
    return bool(verdicts) and all(verdict.passed for verdict in verdicts)


def summary_table(verdicts: Sequence[Verdict], seconds: float) -> Table:
    """A row per check.

    Args:
        verdicts: in the order in which they were reached.
        seconds: that all of it took.
    """
    table = Table(title=f"load test, {seconds:.0f} s")
    for header in ("part", "check", "", "figures"):
        table.add_column(header)
    for verdict in verdicts:
        table.add_row(escape(verdict.part), escape(verdict.check), verdict.word, escape(verdict.figures))
    return table


def summary_json(verdicts: Sequence[Verdict], seconds: float, options: Mapping[str, Any]) -> str:
    """The same for programs.

    Args:
        verdicts: in the order in which they were reached.
        seconds: that all of it took.
        options: what the test was told.
    """
    body = {
        "passed": all_passed(verdicts),
        "seconds": round(seconds, 1),
        "options": dict(options),
        "checks": [asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(body, indent=1) + "\n"
