"""How the number of users goes."""

import pytest

from loadtests.load.courses import COURSES, Ramp, Soak, Spike, Steps


@pytest.mark.parametrize("name", COURSES)
@pytest.mark.parametrize("most", [1, 2, 7, 64])
def test_there_is_always_somebody_and_at_some_time_everybody(name: str, most: int) -> None:
    course = COURSES[name](most, 80.0)
    found = [course.users(tenth / 10) for tenth in range(800)]
    assert (min(found) >= 1, max(found)) == (True, most)


def test_a_ramp_rises_evenly_and_stays() -> None:
    course = Ramp(8, 80.0)
    assert [course.users(moment) for moment in (0, 4.9, 5, 20, 35, 40, 79.9)] == [1, 1, 2, 5, 8, 8, 8]


@pytest.mark.parametrize(
    ("most", "levels"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (64, (1, 2, 4, 8, 16, 32, 64))]
)
def test_steps_double(most: int, levels: tuple[int, ...]) -> None:
    course = Steps(most, 10.0 * len(levels))
    assert tuple(course.users(10.0 * place + 5) for place in range(len(levels))) == levels
    assert course.users(10.0 * len(levels)) == most


def test_a_spike_comes_and_goes() -> None:
    course = Spike(64, 80.0)
    assert [course.users(moment) for moment in (0, 39.9, 40, 59.9, 60, 79.9)] == [4, 4, 64, 64, 4, 4]


def test_a_soak_is_always_the_same() -> None:
    assert {Soak(5, 80.0).users(moment) for moment in (0.0, 40.0, 79.9)} == {5}
