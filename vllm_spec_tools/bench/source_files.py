"""Texts made from source files: passages, changed lines, and what an agent's request adds."""

import random
from collections.abc import Sequence

CHANGED_LINES = 0.05
# What a request of an agent adds before the answer.
INSTRUCTION = "# Continue this file and print all of it.\n"


def changed_lines(lines: Sequence[str], others: Sequence[str], rng: random.Random) -> list[str]:
    """Returns the lines with 5% of them, at least one, replaced.

    Args:
        lines: at least one.
        others: replacement lines; at least two different lines.
    """
    changed = list(lines)
    for i in rng.sample(range(len(lines)), max(1, round(CHANGED_LINES * len(lines)))):
        changed[i] = rng.choice([line for line in others if line != lines[i]])
    return changed


def passages(sources: Sequence[str], num_lines: int, max_characters: int) -> tuple[str, ...]:
    """Returns a passage from the middle of each file that has one of that size.

    Args:
        max_characters: maximum length of a passage; longer ones are left out.
    """
    files = (text.splitlines(keepends=True) for text in sources)
    middles = ("".join(lines[len(lines) // 2 :][:num_lines]) for lines in files if len(lines) >= 2 * num_lines)
    return tuple(text for text in middles if len(text) <= max_characters)
