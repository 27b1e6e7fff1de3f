"""A table, for a terminal, Markdown and HTML alike."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as RichTable

# Of columns of figures in a terminal, and of words where there is no room.
_HEADER_WIDTH, _LEAST_WORDS = 8, 12
# Characters that rich puts between columns, and at the left edge.
_GAP, _EDGE = 2, 1


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        note: explanation of its columns; empty is none.
        text_columns: number of leading columns that hold words; the others hold figures.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: int = 1

    def parts(self, width: int) -> Iterator["Table"]:
        """Yields tables below each other that share the columns of figures, so that each fits into a width if it can.

        Args:
            width: characters; columns of words are as narrow as `rich` makes them.
        """
        heads = [max(map(len, _narrow(header).split("\n"))) for header in self.header]
        longest = [max((len(row[i]) for row in self.rows), default=0) for i in range(len(heads))]
        words = self.text_columns
        room = width - _EDGE - sum(self._least_width(i) + _GAP for i in range(words))
        widths = [max(pair) + _GAP for pair in zip(heads, longest, strict=True)]
        parts: list[list[int]] = [[]]
        for i in range(words, len(widths)):
            if parts[-1] and sum(widths[j] for j in (*parts[-1], i)) > room:
                parts.append([])
            parts[-1].append(i)
        for number, part in enumerate(parts):
            shown = [*range(words), *part]
            yield Table(
                self.title if number == 0 else f"{self.title} (continued)",
                [self.header[i] for i in shown],
                [[row[i] for i in shown] for row in self.rows],
                self.note if part is parts[-1] else "",
                words,
            )

    def rich(self) -> RichTable:
        """Returns it for a terminal; markup in its texts is not interpreted."""
        # Long names of columns are broken into lines, which leaves room for figures; words continue in a further line.
        shown = RichTable(
            title=escape(self.title),
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for i, header in enumerate(map(_narrow, self.header)):
            if i < self.text_columns:
                shown.add_column(escape(header), overflow="fold")
            else:
                shown.add_column(escape(header), justify="right", no_wrap=True)
        for row in self.rows:
            shown.add_row(*map(escape, row))
        for i in range(self.text_columns):
            shown.columns[i].min_width = self._least_width(i)
            shown.columns[i].no_wrap = max((len(row[i]) for row in self.rows), default=0) <= _LEAST_WORDS
        return shown

    def _least_width(self, column: int) -> int:
        """Returns the width of a column of words where there is no room."""
        longest = max((len(row[column]) for row in self.rows), default=0)
        return max(min(longest, _LEAST_WORDS), *map(len, _narrow(self.header[column]).split("\n")), 1)

    def markdown(self) -> str:
        """Returns it as Markdown: title, table and note."""
        parts = [f"**{escape_markdown(self.title)}**", markdown_table([self.header, *self.rows], self.text_columns)]
        return "\n\n".join([*parts, escape_markdown(self.note)] if self.note else parts)


def matrix(
    title: str, arms: Sequence[str], columns: Sequence[str], show: Callable[[str, int], str], note: str = ""
) -> Table:
    """Makes a table with a row per arm.

    Args:
        show: gives the cell of an arm and the index of a column.
    """
    return Table(title, ["arm", *columns], [[arm, *(show(arm, i) for i in range(len(columns)))] for arm in arms], note)


def plural(number: float, noun: str) -> str:
    """Returns a number with its noun: "1 stream", "8 streams"."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def markdown_table(rows: Sequence[Sequence[str]], text_columns: int | None = None) -> str:
    """Formats a table in Markdown; the first row is its head.

    Args:
        text_columns: number of leading columns that hold words; figures, in the others, are aligned right.
    """
    lines = [f"| {' | '.join(map(escape_markdown, row))} |" for row in rows]
    count = len(rows[0])
    words = count if text_columns is None else text_columns
    return "\n".join([lines[0], "|---" * words + "|---:" * (count - words) + "|", *lines[1:]])


def escape_markdown(text: str) -> str:
    """Returns text that Markdown shows as it is, also in a cell of a table."""
    for special in ("\\", "|", "*", "<", "`"):
        text = text.replace(special, f"\\{special}" if special != "<" else "&lt;")
    return text.replace("![", "\\![").replace("\n", " ")


def _narrow(header: str) -> str:
    longest = max(map(len, header.split()), default=0)
    return "\n".join(textwrap.wrap(header, max(longest, _HEADER_WIDTH), break_long_words=False))
