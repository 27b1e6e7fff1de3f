"""Times of nested parts."""

import pytest

from vllm_spec_plugin.tools.bench.host.stopwatch import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_part_does_not_count_what_is_inside_it(clock: Clock) -> None:
    watch = Stopwatch(clock)
    inner = watch.timed("inner", lambda: clock.pass_by(10))

    def outer() -> str:
        clock.pass_by(1)
        inner()
        clock.pass_by(2)
        inner()
        return "done"

    assert watch.timed("outer", outer)() == "done"
    clock.pass_by(100)
    assert watch.seconds == {"outer": 3, "inner": 20}


def test_a_part_that_raises_is_left(clock: Clock) -> None:
    watch = Stopwatch(clock)

    def fail() -> None:
        clock.pass_by(1)
        raise ValueError("on purpose")

    def outer() -> None:
        with pytest.raises(ValueError, match="on purpose"):
            watch.timed("failing", fail)()
        clock.pass_by(5)

    watch.timed("outer", outer)()
    assert watch.seconds == {"failing": 1, "outer": 5}
