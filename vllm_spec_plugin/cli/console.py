"""Consoles that print text from users as it is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def new_console(*, stderr: bool = False, width: int | None = None) -> "Console":
    """A console that draws no emoji for `:name:`, which `rich.markup.escape` leaves as it is."""
    from rich.console import Console

    return Console(stderr=stderr, width=width, emoji=False)
