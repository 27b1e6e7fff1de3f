"""Where unequal lengths cost more, equal ones are planned if they are then worth more."""

import numpy as np
import pytest

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.scheduling.draft_length.allocation import Offers, allocate
from vllm_spec_plugin.scheduling.draft_length.even import best_with_even

K = 4
# One request accepts nearly all draft tokens, one few.
GAINS = np.array([[[0.9**k for k in range(1, K + 1)], [0.4**k for k in range(1, K + 1)]]])


def seconds(each: float) -> Floats:
    """Of a step with 0, 1, 2, ... draft tokens."""
    return np.array([0.010 + each * i for i in range(2 * K + 2)])


def offers(others: int = 0, limits: tuple[int, int] = (K, K)) -> Offers:
    return Offers(
        np.ones((1, 2)),
        GAINS,
        np.ones((1, 2, K)),
        np.zeros((2, 1)),
        np.array([[limits[0]], [limits[1]]]),
        np.array([[0.0, 0.0001, 0.0]]),
        seconds(0.0004),
        2 * K,
        others,
        np.zeros(1, np.bool_),
    )


def plan(uneven: float, **given: object) -> list[int]:
    made = offers(**given)  # type: ignore[arg-type]
    lengths, _, value = allocate(made, 150.0, 0.0004)
    return list(best_with_even(made, lengths, value, uneven)[0][:, 0])


def test_unequal_lengths_stay_where_they_cost_nothing() -> None:
    first, second = plan(0.0)
    assert first == K > second


def test_where_they_cost_much_all_have_one_length() -> None:
    first, second = plan(0.005)
    assert first == second > 0


@pytest.mark.parametrize("given", [{"others": 1}, {"limits": (K, 0)}], ids=["others", "a request with spec off"])
def test_a_step_that_is_uneven_anyway_keeps_its_plan(given: dict[str, object]) -> None:
    made = offers(**given)  # type: ignore[arg-type]
    lengths, _, value = allocate(made, 150.0, 0.0004)
    if made.others:
        assert best_with_even(made, lengths, value, 0.005)[0] is lengths
    else:
        assert best_with_even(made, lengths, value, 0.0)[0] is lengths


def test_nothing_is_drafted_where_neither_pays() -> None:
    made = offers()._replace(step=seconds(0.01))
    lengths = np.array([[2], [1]])
    _, value = best_with_even(made, lengths, allocate(made, 150.0, 0.01)[2]._replace(tokens=2.2, seconds=0.02), 0.01)
    assert value.positions == 0
