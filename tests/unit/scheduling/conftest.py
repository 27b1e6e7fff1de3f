"""Fixtures of scheduling tests."""

import time
from types import SimpleNamespace

import pytest


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock
