"""Medians over rounds, and ratios of arms."""

import pytest

from vllm_spec_tools.report import Measurements, Spread, percentiles, ratio, show_percentiles, show_spread


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5, 1, 2, 3, 4]) == Spread(3, 2, 4)
    assert Spread.of([7]) == Spread(7, 7, 7)
    assert Spread.of([]) is None


def test_values_differ_from_one_that_is_outside_their_confidence_interval() -> None:
    spread = Spread.of([1.04, 1.05, 1.06])
    assert spread is not None
    # Student's 4.30 with two degrees of freedom.
    assert spread.error == pytest.approx(4.30 * 0.01 / 3**0.5)
    assert (spread.differs_from(1.0), spread.differs_from(1.03)) == (True, False)
    alone = Spread.of([7])
    assert alone is not None
    assert alone.differs_from(1.0) is None


def test_percentiles_are_shown_in_milliseconds_with_three_digits() -> None:
    assert percentiles([0.0, 1.0]) == {"p50": 0.5, "p95": pytest.approx(0.95), "p99": pytest.approx(0.99)}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert show_percentiles([0.00123456, 0.0123, 0.123, 1.2345, 0.0, None]) == "1.23/12.3/123/1234/0/-"


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio({0: 2.0, 1: 9.0, 2: 4.0}, {0: 1.0, 1: 3.0, 5: 1.0}) == Spread(2.5, 2.25, 2.75)
    assert ratio({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("spread", "text"),
    [(Spread(2, 1, 2), "2.00 ±25%"), (Spread(2, 2, 2), "2.00"), (Spread(0, -1, 1), "0.00"), (None, "-")],
)
def test_a_spread_is_shown_with_half_the_distance_of_its_quartiles(spread: Spread | None, text: str) -> None:
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
    assert measured.ratio("ours", "none", "easy", 1, "speed") == Spread(3, 2.5, 3.5)
    assert measured.ratio("ours", "none", "easy", 8, "speed") is None
    assert measured.spread("none", "easy", 1, "wait") is None


def test_a_row_per_value_comes_as_a_frame(measured: Measurements) -> None:
    frame = measured.frame()
    assert list(frame.columns) == ["arm", "workload", "level", "round", "metric", "value"]
    assert len(frame) == 6
    assert frame[frame.arm == "ours"].value.tolist() == [20, 30, 80]
    assert measured.summary()[1] == {
        "arm": "ours", "workload": "easy", "level": 1, "metric": "speed", "rounds": 3,
        "median": 30, "low": 25, "high": 55,
    }  # fmt: skip
