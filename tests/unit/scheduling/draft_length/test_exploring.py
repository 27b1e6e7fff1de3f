"""What may be spent on learning, and on what."""

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.arrays import Floats
from vllm_spec_plugin.scheduling.draft_length.exploring import Purse, Sizes


def test_a_purse_holds_its_share_of_the_time_served() -> None:
    purse = Purse(0.01)
    for _ in range(100):
        purse.served(0.5)
    assert purse.seconds == pytest.approx(0.5)
    purse.pay(0.3)
    assert purse.seconds == pytest.approx(0.2)


def test_a_purse_does_not_grow_for_ever() -> None:
    purse = Purse(0.01)
    for _ in range(1000):
        purse.served(10.0)
    assert purse.seconds == pytest.approx(0.6)


def test_a_purse_pays_what_it_holds_and_any_price_when_it_is_full() -> None:
    purse = Purse(0.01)
    assert not purse.can_pay(0.0)
    purse.served(10.0)
    assert purse.can_pay(0.1)
    assert not purse.can_pay(0.11)
    purse.served(50.0)
    assert purse.can_pay(7.0)
    purse.pay(7.0)
    purse.served(60.0)
    assert not purse.can_pay(0.0)


def test_a_purse_without_a_share_pays_nothing() -> None:
    purse = Purse(0.0)
    purse.served(100.0)
    assert not purse.can_pay(0.0)


def plans_of(rows: list[float], losses: list[float]) -> Floats:
    """Plans of so many draft tokens, of one output token and 2 seconds but for what they lose."""
    return np.array([np.ones(len(rows)), rows, np.array(losses) + 2])


def test_the_size_that_was_not_measured_for_longest_is_chosen_of_those_that_can_be_paid() -> None:
    sizes = Sizes()
    for size in (10, 2, 5, 5, 5):
        sizes.measured(size)
    plans = plans_of([2.0, 5.0, 10.0, 20.0], [0.1, 0.0, 0.3, 0.9])
    assert sizes.choose(0, plans, 1, 0.0) is None
    assert sizes.choose(0, plans, 1, 1.0) == pytest.approx((3, 0.9))
    assert sizes.choose(0, plans, 1, 0.5) == pytest.approx((2, 0.3))
    assert sizes.choose(0, plans, 1, 0.2) == pytest.approx((0, 0.1))


def test_a_size_that_was_chosen_waits_like_one_that_was_measured() -> None:
    """The step may turn out to be smaller, if proposers have no guess."""
    sizes = Sizes()
    for _ in range(5):
        sizes.measured(5)
    plans = plans_of([5.0, 10.0], [0.0, 0.0])
    assert sizes.choose(0, plans, 0, 1.0) is not None
    assert sizes.choose(0, plans, 0, 1.0) is None
    sizes.measured(5)
    sizes.measured(5)
    assert sizes.choose(0, plans, 0, 1.0) is not None


def test_a_size_that_seems_to_cost_nothing_has_a_price() -> None:
    """Of the step's 2 seconds, 3 hundredths."""
    plans = plans_of([5.0, 10.0], [0.0, 0.0])
    sizes = Sizes()
    for _ in range(5):
        sizes.measured(5)
    assert sizes.choose(0, plans, 0, 0.05) is None
    assert sizes.choose(0, plans, 0, 0.07) == pytest.approx((1, 0.06))


def test_sizes_that_hardly_differ_count_as_one() -> None:
    sizes = Sizes()
    for _ in range(3):
        sizes.measured(100)
    assert sizes.choose(100, plans_of([0.0, 3.0, 6.0], [0.0, 0.0, 0.0]), 0, 1.0) is None
