"""Built-in prompts: files of JSON Lines beside this one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines_of(path: Path) -> Iterator[Any]:
    """Yields the values of a file of JSON Lines."""
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


# Beginnings of Python as the bundled models know it, none of it from their training text, each about something
# else: one text that repeats itself would be accepted far more often than what people ask for.
PROMPTS: tuple[str, ...] = tuple(lines_of(Path(__file__).with_name("prompts.jsonl")))
# With the schemas of their outputs, as JSON; the schemas take turns. Strings are short and numbers have few digits: a
# small model would write them for as long as it may.
STRUCTURED: tuple[tuple[str, str], ...] = tuple(
    (one["prompt"], json.dumps(one["schema"])) for one in lines_of(Path(__file__).with_name("structured.jsonl"))
)
