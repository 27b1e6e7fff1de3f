"""What the tables of all benchmarks have in common."""

from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table


def new_table(title: str, headers: Iterable[str], words: Collection[str] = ("arm",)) -> Table:
    """A table without rows.

    Args:
        title: over it.
        headers: of its columns.
        words: columns of words, which go on in a further line where there is no room; the others are figures.
    """
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in headers:
        if header in words:
            table.add_column(header, overflow="fold")
        else:
            table.add_column(header, justify="right", no_wrap=True)
    return table


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, the first row being its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
