"""Shared by whole runs of training: a small corpus, little time, and an interrupt in the middle of a step."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

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
def interrupted_after(step: int) -> Iterator[None]:
    """Sends this process a Ctrl-C in the middle of a step, and expects it to come out of the block."""

    def interrupt(training: loop.Training[Any]) -> None:
        if training.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    with watched(interrupt), pytest.raises(KeyboardInterrupt):
        yield


@contextlib.contextmanager
def watched(look: Callable[[loop.Training[Any]], object]) -> Iterator[None]:
    """Calls `look` after each step."""
    advance = loop.Training.advance

    def advance_and_look(training: loop.Training[Any]) -> float:
        loss = advance(training)
        look(training)
        return loss

    with pytest.MonkeyPatch.context() as context:
        context.setattr(loop.Training, "advance", advance_and_look)
        yield


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = load_file(one), load_file(other)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)
