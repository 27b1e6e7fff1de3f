"""Whole runs of training in little time."""

import functools

import pytest

from vllm_spec_tools.training import loop, rows, train
from vllm_spec_tools.training.backbone import load_backbone
from vllm_spec_tools.training.eagle3 import train as eagle3_train

# Nothing writes to a target: it is loaded once.
load_once = functools.cache(load_backbone)


@pytest.fixture
def in_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches of own text and few measurements on the way."""
    monkeypatch.setitem(rows._BATCH_ROWS, "cpu", 8)
    monkeypatch.setattr(loop, "MEASUREMENTS", 3)
    monkeypatch.setattr(train, "load_backbone", load_once)
    monkeypatch.setattr(eagle3_train, "load_backbone", load_once)
