"""A table with what is to be said of it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
        title: over the table.
        header: of its columns.
        rows: as many cells each as the header has.
        note: what it is to be read with; empty is nothing.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
