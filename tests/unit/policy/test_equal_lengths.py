"""Tests that equal lengths are planned if unequal ones cost more than they gain."""

import numpy as np

from vllm_spec_plugin.policy.allocation import CandidateDrafts, allocate
from vllm_spec_plugin.policy.equal_lengths import best_with_even

K = 4
# One request accepts nearly all draft tokens, one few.
GAINS = np.array([[[0.9**k for k in range(1, K + 1)], [0.4**k for k in range(1, K + 1)]]])


def candidates(others: int = 0, limits: tuple[int, int] = (K, K), each: float = 0.0004) -> CandidateDrafts:
    return CandidateDrafts(
        draft_prob=np.ones((1, 2)),
        gains=GAINS,
        draft_tokens=np.ones((1, 2, K)),
        entry=np.zeros((2, 1)),
        limits=np.array(limits)[:, None],
        drafting=np.array([[0.0, 0.0001, 0.0]]),
        step=np.array([0.010 + each * i for i in range(2 * K + 2)]),
        max_draft_tokens=2 * K,
        others=others,
        unconditional=np.zeros(1, np.bool_),
    )


def lengths_of(made: CandidateDrafts, uneven: float) -> list[int]:
    lengths, _, value = allocate(made, 150.0, 0.0004)
    return list(best_with_even(made, lengths, value, uneven)[0][:, 0])


def test_unequal_lengths_stay_where_they_cost_nothing_or_cannot_be_equal() -> None:
    """Beside a step's other requests, they cost no more."""
    first, second = lengths_of(candidates(), 0.0)
    assert first == K > second
    assert lengths_of(candidates(others=1), 0.005)[0] == K > lengths_of(candidates(others=1), 0.005)[1]
    assert lengths_of(candidates(limits=(K, 0)), 0.0) == [K, 0]


def test_where_they_cost_much_all_have_one_length() -> None:
    first, second = lengths_of(candidates(), 0.005)
    assert first == second > 0


def test_nothing_is_drafted_where_neither_pays() -> None:
    made = candidates(each=0.01)
    lengths, value = np.array([[2], [1]]), allocate(made, 150.0, 0.01)[2]._replace(tokens=2.2, seconds=0.02)
    assert best_with_even(made, lengths, value, 0.01)[1].positions == 0
