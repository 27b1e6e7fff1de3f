"""Consoles that print users' text unchanged."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def new_console(*, stderr: bool = False, width: int | None = None) -> "Console":
    """Creates a console that prints `:name:` unchanged; `rich.markup.escape` does not prevent emoji."""
    from rich.console import Console

    return Console(stderr=stderr, width=width, emoji=False)
