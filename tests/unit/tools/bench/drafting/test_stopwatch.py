"""Times of nested parts."""

import pytest

from vllm_spec_plugin.tools.bench.drafting.stopwatch import Stopwatch, TimedModel, replaced


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


def test_a_timed_model_is_the_model_otherwise(clock: Clock) -> None:
    class Model:
        size = 3

        def __call__(self, *, token: int) -> int:
            clock.pass_by(2)
            return token + 1

        def compute_logits(self, state: int) -> int:
            clock.pass_by(4)
            return state * 2

    watch = Stopwatch(clock)
    model = TimedModel(Model(), watch, "forward", "head")
    assert (model(token=1), model.compute_logits(3), model.size) == (2, 6, 3)
    assert watch.seconds == {"forward": 2, "head": 4}


def test_what_was_replaced_comes_back() -> None:
    class Thing:
        def speak(self) -> str:
            return "own"

    thing = Thing()
    with replaced(thing, "speak", lambda original: lambda: f"not {original()}"):
        assert thing.speak() == "not own"
        with replaced(thing, "speak", lambda original: lambda: f"{original()}!"):
            assert thing.speak() == "not own!"
        assert thing.speak() == "not own"
    assert thing.speak() == "own"
    assert "speak" not in vars(thing)


def test_what_is_not_there_cannot_be_replaced() -> None:
    with pytest.raises(AttributeError, match="listen"), replaced(object(), "listen", lambda original: original):
        pass
