"""Numbers for people."""

import pytest

from loadtests.report.numbers import count, duration, number, percent, time_text, unit_for


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (1.2345, "1.23"),
        (9.999, "10.0"),
        (99.96, "100"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (-1.2345, "-1.23"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_numbers_have_three_digits_and_all_before_the_point(value: float | None, text: str) -> None:
    assert number(value) == text


def test_times_are_told_in_milliseconds_below_ten_seconds() -> None:
    told = [time_text(seconds) for seconds in (0, 0.00123, 0.0123, 1.234, 9.99, 10, 123.4, None)]
    assert told == ["0 ms", "1.23 ms", "12.3 ms", "1,234 ms", "9,990 ms", "10.0 s", "123 s", "-"]


def test_times_to_be_compared_have_one_unit() -> None:
    assert unit_for([0.2, None]).name == unit_for([]).name == "ms"
    unit = unit_for([0.2, 12.0])
    assert (unit.name, unit.of(0.2), unit.of(None)) == ("s", "0.200", "-")


def test_durations_shares_and_counts() -> None:
    assert [duration(seconds) for seconds in (0, 59.72, 119.9, 725, 28800)] == [
        "0 s",
        "59.7 s",
        "2 min 0 s",
        "12 min 5 s",
        "8 h 0 min",
    ]
    assert (percent(0.9313), percent(None), count(1234567), count(None)) == ("93.1%", "-", "1,234,567", "-")
