"""A tiny package in place of vLLM, and a plugin that uses it."""

import textwrap
from pathlib import Path

from tests.seams.sources import Sources, folder_reader

BASE = """
    class Base:
        def step(self, x):
            raise NotImplementedError

        def shared(self):
            return 1
"""
ENGINE = '''
    from dataclasses import dataclass

    from lib.base import Base

    LIMIT: int = 3


    @dataclass
    class Message:
        token_ids: list[int]
        is_last: bool = False


    class Batch:
        """Rows."""

        def __init__(self, size: int) -> None:
            self.rows: list[Message] = []
            self.size = size


    class Engine(Base):
        def __init__(self, size: int) -> None:
            self.batch = Batch(size)
            self.waiting: dict[str, Message] = {}

        def step(self, x: int, *, fast=True) -> Message:
            """Makes a step."""
            # Doubles.
            return Message([2 * x])

        @property
        def is_idle(self) -> bool:
            return not self.waiting

        def _private(self) -> None: ...


    def make(size: int = LIMIT) -> Engine:
        return Engine(size)
'''


def write(top: Path, files: dict[str, str]) -> Path:
    """Writes files of Python, and an `__init__.py` in their folders; gives `top`."""
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
    return top


def library(top: Path, engine: str = ENGINE, base: str = BASE, init: str = "") -> Path:
    """Writes the package `lib`; gives `top`."""
    return write(top, {"lib/base.py": base, "lib/engine.py": engine, "lib/__init__.py": init})


def sources(top: Path) -> Sources:
    """Reads the packages `lib` and `plugin` in `top`."""
    return Sources(folder_reader(top, "plugin"), folder_reader(top, "lib"))
