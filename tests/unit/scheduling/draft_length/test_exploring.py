"""What may be spent on learning, and on what."""

import pytest

from vllm_spec_plugin.scheduling.draft_length.exploring import Purse


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
