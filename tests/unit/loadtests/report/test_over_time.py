"""How a load test went, moment by moment."""

import numpy as np
import pytest

from loadtests.report.over_time import ecdf, edges_of, mean_number, percentiles, spread


def test_amounts_are_spread_evenly_and_none_is_lost() -> None:
    edges = edges_of(4, 4)
    found = spread([0.5, 1, 4, 0], [2.5, 1, 4, 4], [20, 7, 3, 0], edges)
    np.testing.assert_allclose(found, [5 + 7, 10, 5, 3], atol=1e-4)
    rng = np.random.default_rng(0)
    begins = rng.uniform(0, 3, 100)
    amounts = rng.uniform(1, 9, 100)
    assert spread(begins, begins + rng.uniform(0, 1, 100), amounts, edges).sum() == pytest.approx(amounts.sum())


def test_without_amounts_there_is_nothing_in_the_bins() -> None:
    np.testing.assert_array_equal(spread([], [], [], edges_of(1, 3)), [0, 0, 0])
    np.testing.assert_array_equal(mean_number([], edges_of(1, 3)), [0, 0, 0])
    assert [found.size for found in ecdf([], most=10)] == [0, 0]


def test_a_number_holds_until_it_changes() -> None:
    changes = [(0.5, 2), (1.0, 4), (3.5, 0)]
    np.testing.assert_allclose(mean_number(changes, edges_of(4, 4)), [1, 4, 4, 2])
    # It also holds to the end.
    np.testing.assert_allclose(mean_number([(0.0, 1), (1.0, 3)], edges_of(4, 4)), [1, 3, 3, 3])


def test_percentiles_are_of_what_began_at_about_the_same_time() -> None:
    moments = np.concatenate([np.linspace(0, 0.9, 50), np.linspace(3, 3.9, 50)])
    values = np.concatenate([np.full(50, 1.0), np.full(50, 2.0)])
    middles, (p50, p95) = percentiles(moments, values, 4.0, (50, 95), most=4)
    np.testing.assert_allclose(middles, [0.5, 3.5])
    np.testing.assert_allclose(p50, [1, 2])
    np.testing.assert_allclose(p95, [1, 2])


def test_few_values_share_a_bin() -> None:
    middles, found = percentiles([0.1, 3.0, 4.0], [1.0, 2.0, 9.0], 4.0, (50,), most=60)
    assert (middles.tolist(), found.tolist()) == ([2.0], [[2.0]])


def test_an_ecdf_ends_with_all_and_keeps_both_ends_of_many_values() -> None:
    x, y = ecdf([3.0, 1.0, 2.0, 2.0], most=10)
    assert (x.tolist(), y.tolist()) == ([1, 1, 2, 2, 3], [0, 0.25, 0.5, 0.75, 1])
    values = np.random.default_rng(1).permutation(np.arange(10_000.0))
    x, y = ecdf(values, most=101)
    assert (x.size, x[0], x[-1], y[-1]) == (102, 0, 9999, 1)
    np.testing.assert_allclose(y[1:], (x[1:] + 1) / 10_000)
