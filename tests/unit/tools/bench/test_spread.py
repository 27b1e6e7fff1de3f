"""Medians of rounds, and ratios."""

from vllm_spec_plugin.tools.bench.spread import Spread, ratio, show_spread


def test_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread.of([]) is None


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times slower in round 1: both arms met it.
    assert ratio({0: 1.0, 1: 10.0, 2: 1.0}, {0: 2.0, 1: 20.0, 2: 2.0}) == Spread(0.5, 0.5, 0.5)
    assert ratio({0: 1.0, 1: 3.0}, {1: 2.0, 2: 5.0}) == Spread(1.5, 1.5, 1.5)
    assert ratio({0: 1.0}, {}) is None


def test_half_the_distance_of_the_quartiles_is_shown_beside_the_median() -> None:
    assert show_spread(Spread(100.0, 95.0, 105.0), digits=0) == "100 ±5%"
    assert show_spread(Spread(0.25, 0.25, 0.25), 1e3) == "250.00"
    assert show_spread(Spread(0.0, 0.0, 1.0)) == "0.00"
    assert show_spread(None) == "-"
