"""Consoles that print users' text unchanged, and reports on them."""

from typing import TYPE_CHECKING

from vllm_spec_tools.cli.errors import fail

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_spec_tools.report import Files, Report


def new_console(*, stderr: bool = False, width: int | None = None) -> "Console":
    """Creates a console that prints `:name:` unchanged; `rich.markup.escape` does not prevent emoji."""
    from rich.console import Console

    return Console(stderr=stderr, width=width, emoji=False)


def write_or_fail(report: "Report", files: "Files") -> None:
    """Writes a report to the terminal and to files.

    Raises:
        Exit: it has problems.
    """
    from vllm_spec_tools.report import write

    write(report, terminal=new_console(), **vars(files))
    if report.problems:
        fail("; ".join(report.problems), 1)
