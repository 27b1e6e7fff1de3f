"""Waiting for other processes, and repeating what they disturbed, on a machine made up."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from vllm_spec_tools.bench.noise_gate import NoiseGate, busy_seconds


class Done(NamedTuple):
    """Result of job `number`."""

    cpu_seconds: float
    number: int


class Machine:
    """Time passes when somebody sleeps or works; others use what `others` says at that moment."""

    def __init__(self, *others: tuple[float, float]) -> None:
        self.now, self.busy, self.num_jobs = 0.0, 0.0, 0
        self._others = others  # until when, cores

    def spend(self, seconds: float, own: float = 0.0) -> None:
        """In small steps, for others to change in between."""
        for _ in range(round(seconds * 100)):
            self.busy += 0.01 * (own + next((cores for until, cores in self._others if self.now < until), 0.0))
            self.now += 0.01

    def job(self) -> Done:
        """Two seconds on two cores."""
        self.spend(2.0, own=2.0)
        self.num_jobs += 1
        return Done(4.0, self.num_jobs)

    def quiet(self, noise_budget: float) -> NoiseGate:
        return NoiseGate(noise_budget, busy=lambda: self.busy, clock=lambda: self.now, sleep=self.spend)


def test_a_job_that_was_disturbed_is_repeated() -> None:
    machine = Machine((0.4, 0.0), (4.0, 1.0))
    answer, others = machine.quiet(60).run(machine.job)
    assert (answer.number, machine.num_jobs) == (2, 2)
    assert others == pytest.approx(0.0, abs=1e-9)


def test_a_job_that_can_not_be_repeated_is_only_waited_for() -> None:
    machine = Machine((1.0, 1.0), (1.5, 0.0), (4.0, 1.0))
    _, others = machine.quiet(60).run(machine.job, repeats=False)
    assert machine.num_jobs == 1
    assert others is not None
    assert others > 0.5


def test_out_of_patience_the_least_disturbed_time_counts() -> None:
    machine = Machine((0.4, 0.0), (3.0, 0.5), (999.0, 1.5))
    answer, others = machine.quiet(8).run(machine.job)
    assert machine.num_jobs == 2
    assert answer.number == 1
    assert others == pytest.approx(0.47, abs=0.03)


def test_patience_is_spent_once() -> None:
    machine = Machine((999.0, 1.0))
    quiet = machine.quiet(10)
    for _ in range(20):
        quiet.run(machine.job)
    assert machine.num_jobs == 20
    assert machine.now < 10 + 20 * 2.3 + 1


def test_idle_time_and_waiting_for_disks_are_not_work(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text(
        "cpu  102 201 301 9999 9999 11 21 31 5 5\n"
        "cpu0 100 200 300 9999 9999 10 20 30 5 5\n"
        "cpu1 1 1 1 9 9 1 1 1 9 9\n"
        "cpu10 1 0 0 0 0 0 0 0 0 0\n"
    )
    assert busy_seconds(path, {0}) == pytest.approx(6.6)
    assert busy_seconds(path, {0, 1}) == pytest.approx(6.66)
    assert busy_seconds(path, {2}) is None


def test_only_the_cores_of_this_process_count() -> None:
    found = busy_seconds()
    assert found == pytest.approx(busy_seconds(cores=os.sched_getaffinity(0)), abs=5)


@pytest.mark.parametrize("text", ["", "nothing here\n", "cpu 1 2\n"])
def test_a_machine_that_does_not_tell_is_not_known(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stat"
    path.write_text(text)
    assert busy_seconds(path) is None
    assert busy_seconds(tmp_path / "none") is None
