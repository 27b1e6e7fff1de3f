"""Runs of a comparison in a file, each written as it ends, so that an interrupted command goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.records import Cell, LoadRun

_RUN, _SUBJECT = TypeAdapter(LoadRun), TypeAdapter(dict[str, Any])
Key = tuple[str, Cell, int]


class RunFile:
    """A file of runs, as JSON Lines behind a line that says of what.

    Attributes:
        kept: runs that the file had, by arm, cell and round.
    """

    def __init__(self, path: Path, subject: Mapping[str, Any]) -> None:
        """Reads the file, or begins it.

        Args:
            subject: what makes runs comparable: only runs of the same are taken.

        Raises:
            UserError: it can't be read or written, or is of another command.
        """
        self._path = path
        own = to_json(dict(subject)).decode()
        text = self._read()
        # A line that was being written when the command was killed does not count.
        first, *rows = text[: text.rfind("\n") + 1].splitlines() or [own]
        try:
            found = [_RUN.validate_json(row) for row in rows]
            before = _SUBJECT.validate_json(first)
        except ValidationError:
            advice = "allowed: a new file, or one that the same command wrote"
            raise UserError(f"--runs {path}: is no file of runs; {advice}") from None
        now = _SUBJECT.validate_json(own)
        if differing := sorted(key for key in now | before if before.get(key) != now.get(key)):
            raise UserError(
                f"--runs {path}: has runs of a command with other {', '.join(differing)}; allowed: the same command, "
                "or a new file"
            )
        self._write("".join(f"{line}\n" for line in (first, *rows)), "w")
        self.kept = {(run.arm, run.cell, run.round): run for run in found}

    def add(self, run: LoadRun) -> None:
        """Keeps a run.

        Raises:
            UserError: the file can't be written.
        """
        self.kept[run.arm, run.cell, run.round] = run
        self._write(_RUN.dump_json(run).decode() + "\n", "a")

    def _read(self) -> str:
        try:
            return self._path.read_text("utf-8") if self._path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not in UTF-8"
            raise UserError(f"--runs {self._path}: cannot be read: {reason}; allowed: a new file") from None

    def _write(self, text: str, mode: str) -> None:
        try:
            with self._path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"--runs {self._path}: cannot be written: {reason}; allowed: a new file") from None
