"""Checkpoints of a training run, so that an interrupted one goes on."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.schema.errors import UserError, show


class Checkpoint:
    """The folder `checkpoint` in the folder that heads are trained into."""

    def __init__(self, out: Path, weights: str) -> None:
        """Takes the folder, and the name of the file of finished heads in it."""
        self._out = out
        self._weights = weights
        self.folder = out / "checkpoint"
        self._arguments = self.folder / "arguments.json"
        self._state = self.folder / "state.pt"

    def begin(self, arguments: dict[str, Any], *, restart: bool) -> None:
        """Makes the folder, or finds that of an interrupted run with the same arguments.

        Raises:
            UserError: there is a run with other arguments, or finished heads.
        """
        advice = "or begin anew with --restart"
        if restart:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self._arguments.is_file():
            before = json.loads(self._arguments.read_text(encoding="utf-8"))
            differing = [
                f"{key} {show(before.get(key))} there and {show(arguments.get(key))} here"
                for key in sorted(before.keys() | arguments.keys())
                if before.get(key) != arguments.get(key)
            ]
            if differing:
                raise UserError(
                    f"--out {self._out}: holds an interrupted run with other arguments: {'; '.join(differing)}; "
                    f"allowed: the same ones, to go on with it; {advice}"
                )
            return
        elif (self._out / self._weights).is_file():
            raise UserError(f"--out {self._out}: holds heads already; allowed: another folder; {advice}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(self._arguments, json.dumps(arguments, indent=2))

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None is nothing yet.

        Raises:
            UserError: the file is broken.
        """
        if not self._state.is_file():
            return None
        try:
            state: dict[str, Any] = torch.load(self._state, weights_only=True)
        except Exception as error:  # a broken zip, pickle or tensor
            raise UserError(
                f"{self._state}: cannot be read: {type(error).__name__}; begin anew with --restart"
            ) from None
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replaces what was saved; an interrupted write leaves the last one."""
        half = self._state.with_suffix(".new")
        torch.save(state, half)
        half.replace(self._state)

    def remove(self) -> None:
        """The run is through."""
        shutil.rmtree(self.folder)

    def _write(self, path: Path, text: str) -> None:
        half = path.with_suffix(".new")
        half.write_text(text, encoding="utf-8")
        half.replace(path)
