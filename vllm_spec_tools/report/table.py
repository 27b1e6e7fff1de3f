"""A table, for a terminal, Markdown and HTML alike."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table as RichTable

# Characters of a column's header before it is broken into lines, which leaves room for figures.
_HEADER_WIDTH = 8
# Longer words, such as paths, are broken where a line is full.
_LONGEST_WORD = 24


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

    def rich(self, width: int) -> Iterator[RichTable]:
        """Yields it for a terminal, in parts if it is wider, each with the columns of words; no head is cut.

        Args:
            width: characters of a line. Markup in texts is not interpreted.
        """
        texts = [[_narrow(head), *(row[i] for row in self.rows)] for i, head in enumerate(self.header)]
        widest = [max(cell_len(line) for text in own for line in text.split("\n")) for own in texts]
        words = [[cell_len(word) for text in own for word in text.split()] for own in texts]
        least = [min(max(own, default=0), _LONGEST_WORD) for own in words]
        # Columns stand closer where that makes the table fit.
        gap = 2 if _taken(least, 2) <= width else 1
        start, title = self.text_columns, self.title
        while True:
            part = [*range(self.text_columns), *range(start, start + 1)][: len(texts)]
            while (end := part[-1] + 1) < len(texts) and _taken([least[i] for i in (*part, end)], gap) <= width:
                part.append(end)
            fitted = {i: widest[i] for i in part}
            while _taken(fitted.values(), gap) > width and (wide := [i for i in part if fitted[i] > least[i]]):
                fitted[max(wide, key=lambda i: fitted[i])] -= 1
            yield self._part(title, {i: texts[i] for i in part}, fitted, gap)
            if end >= len(texts):
                return
            start, title = end, f"{self.title} (continued)"

    def _part(self, title: str, texts: Mapping[int, Sequence[str]], widths: Mapping[int, int], gap: int) -> RichTable:
        """Returns some columns, by their places, each with its head."""
        looks: Any = {"title_justify": "left", "title_style": "bold", "box": SIMPLE_HEAD}
        shown = RichTable(title=escape(title), padding=(0, gap - 1, 0, 0), **looks)
        for i, (head, *_) in texts.items():
            justify: Any = "left" if i < self.text_columns else "right"
            shown.add_column(escape(head), justify=justify, overflow="fold", width=widths[i])
        for row in zip(*(own[1:] for own in texts.values()), strict=True):
            shown.add_row(*map(escape, row))
        return shown

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
    words = len(rows[0]) if text_columns is None else text_columns
    return "\n".join([lines[0], "|---" * words + "|---:" * (len(rows[0]) - words) + "|", *lines[1:]])


def escape_markdown(text: str) -> str:
    """Returns text that Markdown shows as it is, also in a cell of a table."""
    for special in ("\\", "|", "*", "<", "`"):
        text = text.replace(special, f"\\{special}" if special != "<" else "&lt;")
    return text.replace("![", "\\![").replace("\n", " ")


def _taken(widths: Iterable[int], gap: int) -> int:
    """Returns the characters of a line of columns, with so many between them, and edges."""
    return sum(width + gap for width in widths) + 1


def _narrow(header: str) -> str:
    longest = max(map(len, header.split()), default=0)
    return "\n".join(textwrap.wrap(header, max(longest, _HEADER_WIDTH), break_long_words=False))
