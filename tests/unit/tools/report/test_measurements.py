"""Medians over rounds, and ratios of arms."""

import numpy as np
import pytest
from scipy import stats

from vllm_spec_tools.report import Measurements, Ratio, Spread, percentiles, ratio, show_percentiles, show_spread


def test_a_spread_is_the_median_and_the_range() -> None:
    assert Spread.of([5, 1, 2, 3, 4]) == Spread(3, 1, 5)
    assert Spread.of([7]) == Spread(7, 7, 7)
    assert Spread.of([]) is None


def test_a_ratio_differs_if_its_confidence_interval_excludes_one() -> None:
    found = Ratio.of([1.04, 1.05, 1.06])
    assert found is not None
    logs = np.log([1.04, 1.05, 1.06])
    assert found.interval == pytest.approx(np.exp(stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))), rel=1e-4)
    assert (found.median, found.low, found.high, found.rounds, found.differs) == (1.05, 1.04, 1.06, 3, True)
    noisy, alone = Ratio.of([1.07, 0.7, 1.45]), Ratio.of([7])
    assert noisy is not None
    assert noisy.differs is False
    assert alone is not None
    assert (alone.interval, alone.differs) == (None, None)


@pytest.mark.parametrize("rounds", [3, 5, 7])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_equal_arms_differ_in_one_of_twenty_comparisons(rounds: int, noise: float) -> None:
    # 4,000 comparisons by seed 0; a true rate of 5% exceeds 6.4%, or falls below 3.6%, in one of 20,000 tests.
    rng = np.random.default_rng(0)
    speeds = np.clip(rng.normal(1, noise, (4000, 2, rounds)), 0.1, None)
    found = [Ratio.of(ours / theirs) for ours, theirs in speeds]
    assert 0.036 < np.mean([one is not None and one.differs for one in found]) < 0.064


def test_percentiles_are_shown_in_milliseconds_with_three_digits() -> None:
    assert percentiles([0.0, 1.0]) == {"p50": 0.5, "p95": pytest.approx(0.95), "p99": pytest.approx(0.99)}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert show_percentiles([0.00123456, 0.0123, 0.123, 1.2345, 0.0, None]) == "1.23/12.3/123/1234/0/-"


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio({0: 2.0, 1: 9.0, 2: 4.0}, {0: 1.0, 1: 3.0, 5: 1.0}) == Ratio.of([2.0, 3.0])
    assert ratio({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("spread", "text"), [(Spread(2, 1, 2), "2.00 (1.00-2.00)"), (Spread(2, 2, 2), "2.00"), (None, "-")]
)
def test_a_spread_is_shown_with_its_range(spread: Spread | None, text: str) -> None:
    assert show_spread(spread) == text


@pytest.fixture
def measured() -> Measurements:
    found = Measurements()
    for number, (none, ours) in enumerate([(10.0, 20.0), (10.0, 30.0), (20.0, 80.0)]):
        found.add("none", "easy", 1, number, {"speed": none, "wait": None})
        found.add("ours", "easy", 1, number, {"speed": ours})
    return found


def test_arms_are_compared_at_the_same_workload_and_level(measured: Measurements) -> None:
    assert measured.median("ours", "easy", 1, "speed") == 30
    assert measured.ratio("ours", "none", "easy", 1, "speed") == Ratio.of([2, 3, 4])
    assert measured.ratio("ours", "none", "easy", 8, "speed") is None
    assert measured.spread("none", "easy", 1, "wait") is None


def test_a_row_per_value_comes_as_csv_and_medians_for_programs(measured: Measurements) -> None:
    header, *rows = measured.as_csv().splitlines()
    assert header == "arm,workload,level,round,metric,value"
    assert [row.rpartition(",")[2] for row in rows if row.startswith("ours,")] == ["20.0", "30.0", "80.0"]
    assert measured.summary()[1] == {
        "arm": "ours", "workload": "easy", "level": 1, "metric": "speed", "rounds": 3,
        "median": 30, "low": 20, "high": 80,
    }  # fmt: skip


def test_a_mean_ratio_is_the_geometric_mean_over_cells_round_by_round() -> None:
    found = Measurements()
    for level, ratios in ((1, (1.0, 4.0)), (8, (4.0, 9.0))):
        for number, own in enumerate(ratios):
            found.add("a", "w", level, number, {"speed": 10 * own})
            found.add("b", "w", level, number, {"speed": 10})
    mean = found.mean_ratio([("a", "b", "w", 1), ("a", "b", "w", 8)], "speed")
    assert mean is not None
    assert [mean.low, mean.high, mean.rounds] == pytest.approx([2, 6, 2])
    assert found.mean_ratio([], "speed") is None
