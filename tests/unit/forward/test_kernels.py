"""Kernels made at start-up."""

import time

import pytest

from vllm_spec_plugin.forward.start_up import make_kernels


def sizes_run(monkeypatch: pytest.MonkeyPatch, most: int, seconds: float, seconds_per_token: float) -> list[int]:
    """The sizes that are run where a step takes that long."""
    now, sizes = [0.0], list[int]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def run(size: int) -> None:
        sizes.append(size)
        now[0] += size * seconds_per_token

    assert make_kernels(run, most, seconds) == len(sizes)
    return sizes


def test_each_size_is_run_once_up_to_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes_run(monkeypatch, 5, 1.0, 1e-6) == [1, 2, 3, 4, 5]


def test_it_ends_when_the_time_is_up_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes_run(monkeypatch, 1000, 1.0, 0.1) == [1, 2, 3, 4]


def test_nothing_is_run_where_there_is_nothing_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes_run(monkeypatch, 0, 1.0, 1e-6) == []
