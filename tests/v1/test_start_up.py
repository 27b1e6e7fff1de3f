"""Steps that are run at start-up: measured, or for the kernels that they make."""

import time

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.v1.start_up import describe, make_kernels, probe_steps


class Clock:
    """Runs take what they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds_per_token: float) -> None:
        self.now, self.sizes, self._cost = 50.0, list[int](), seconds_per_token
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def run(self, size: int) -> None:
        self.sizes.append(size)
        self.now += size * self._cost


def test_measures_each_size_once_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1e-6)
    measured = probe_steps(clock.run, 2048, 1.0)
    assert clock.sizes[:2] == [1, 1]
    assert {size for size, _ in measured} == {1, 2, 4, 8, 16, 32, 64, 128}
    assert all(seconds == pytest.approx(size * 1e-6) for size, seconds in measured)


def test_ends_before_the_time_is_up_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.02)
    measured = probe_steps(clock.run, 2048, 1.0)
    assert [size for size, _ in measured] == [1, 8, 32]
    assert clock.now <= 51.0


def test_ranks_that_must_agree_run_the_same_steps_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = Clock(monkeypatch, 1e-6), Clock(monkeypatch, 10.0)
    probe_steps(slow.run, 2048, None)
    Clock(monkeypatch, 0.0)
    probe_steps(fast.run, 2048, None)
    assert fast.sizes == slow.sizes == [1, 1, 8, 32]


@pytest.mark.parametrize(
    ("most", "seconds_per_token", "sizes"), [(5, 1e-6, [1, 2, 3, 4, 5]), (1000, 0.1, [1, 2, 3, 4]), (0, 1e-6, [])]
)
def test_kernels_are_made_size_by_size_until_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, most: int, seconds_per_token: float, sizes: list[int]
) -> None:
    clock = Clock(monkeypatch, seconds_per_token)
    assert make_kernels(clock.run, most, 1.0) == len(sizes)
    assert clock.sizes == sizes


def test_one_line_says_what_is_served() -> None:
    data = {"proposer": {"method": "draft_model", "model": "org/small"}, "draft_length": {"tokens": 8}}
    exact = describe(parse_config(data, "spec.yaml").summary, 3 * 2**19, 10 * 2**20, 2**21)
    for part in (
        "draft_model",
        "up to 8 draft tokens, exact;",
        "1.5 MiB of draft weights",
        "20% of",
        "2.0 of 10.0 MiB",
    ):
        assert part in exact
    lossy = {**data, "verification": {"lenience": 0.8}}
    assert "LOSSY (lenience 0.8)" in describe(parse_config(lossy, "spec.yaml").summary, 0, 0, 0)
