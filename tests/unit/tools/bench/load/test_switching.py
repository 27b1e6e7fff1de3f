"""Windows of output, and when an arm is near the best one."""

import pytest

from tests.unit.tools.bench.load.cases import K_4, results, run, windows
from vllm_spec_tools.bench.arms import NONE, OPTIMAL
from vllm_spec_tools.bench.load.switching import recovered_after, switch_phases, window_rates
from vllm_spec_tools.bench.load.workloads import SWITCHES, SWITCHING
from vllm_spec_tools.bench.records import Progress


def test_a_step_across_windows_is_divided_between_them() -> None:
    # 30 tokens in 1 s, then 40 in 2 s, half of which belong to the second window.
    assert window_rates(Progress([1.0, 3.0, 4.0], [30, 70, 100], 9), 50) == pytest.approx([50 / 2, 50 / 2])


def test_a_step_may_be_longer_than_a_window() -> None:
    assert window_rates(Progress([3.0], [150], 9), 50) == pytest.approx([50, 50, 50])


@pytest.mark.parametrize(
    ("ours", "tokens"),
    [
        ((50, 50, 50, 50), 0),
        ((46, 45, 10, 10), 0),
        ((10, 46, 10, 46), 150),
        ((10, 10, 46, 46), 100),
        ((10, 10, 10, 46), 150),
        ((44, 44, 44, 44), None),
    ],
)
def test_near_the_best_is_in_two_windows_in_a_row(ours: tuple[float, ...], tokens: int | None) -> None:
    assert recovered_after(ours, (50, 50, 50, 50)) == tokens


def test_the_best_arm_is_found_for_each_phase() -> None:
    phases = results().switches[1]
    assert [phase.kind for phase in phases] == list(SWITCHES)
    assert [phase.best for phase in phases] == [K_4, NONE, K_4]
    # 25, 46, 40, 44 of 50: the second window is near, but the third is not, nor the fourth.
    assert [phase.recovered[OPTIMAL] for phase in phases] == [0, 100, None]
    assert phases[1].rates[OPTIMAL] == pytest.approx([12, 17, 19, 20])


def test_rates_are_medians_of_the_rounds_and_per_stream_windows() -> None:
    runs = [
        run("a", [windows((rate, rate), tokens=200)] * 3, workload=SWITCHING, streams=4, number=number)
        for number, rate in enumerate((10.0, 80.0, 20.0))
    ]
    (phase, *_) = switch_phases(runs, ["a"])
    assert phase.rates == {"a": pytest.approx([20.0, 20.0])}
