"""Shared by whole runs of training: an interrupt in the middle of a step."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.training.tiny import LETTERS
from vllm_spec_tools.training import loop

SIZES: dict[str, Any] = {
    "batch_tokens": 512,
    "max_length": 32,
    "self_distill": 160,
    "dtype": "float32",
    "learning_rate": 0.01,
}


def corpus(folder: Path) -> Path:
    """Writes 20 texts to a new folder and returns it."""
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text(LETTERS[number:] + LETTERS[:number] + LETTERS)
    return folder


@contextlib.contextmanager
def watched(look: Callable[[loop.Training], object]) -> Iterator[None]:
    """Calls `look` after each step."""
    advance = loop.Training.advance

    def advance_and_look(training: loop.Training) -> float:
        loss = advance(training)
        look(training)
        return loss

    with pytest.MonkeyPatch.context() as context:
        context.setattr(loop.Training, "advance", advance_and_look)
        yield
