"""The plans for a batch against trying everything."""

from itertools import product

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.optimal import Plans, Promises, plans


def promises(gains, entry=None, delivered=None):
    gains = np.array(gains, np.float64)
    return Promises(
        gains,
        np.ones_like(gains) if delivered is None else np.array(delivered, np.float64),
        np.zeros(len(gains)) if entry is None else np.array(entry, np.float64),
    )


def planned(given, step, draft=(0.0, 0.0, 0.0), limits=None, most_tokens=1000) -> Plans:
    num_requests, most = given.gains.shape
    limits = np.full(num_requests, most) if limits is None else np.array(limits)
    return plans(given, np.array(step, np.float64), np.array(draft, np.float64), limits, most_tokens)


def rate(given, lengths, step, draft):
    """Expected tokens per second of given draft lengths, from the definition."""
    tokens = len(lengths) + sum(given.gains[r, :length].sum() for r, length in enumerate(lengths))
    seconds = step[sum(lengths)]
    if any(lengths):
        seconds += draft[0] + draft[1] * max(lengths) + draft[2] * sum(lengths)
    return tokens / seconds


@pytest.mark.parametrize("seed", range(40))
def test_no_draft_lengths_are_better(seed):
    """3 requests, up to 3 tokens, random gains, a step time of any rising shape, passes that cost by the longest."""
    rng = np.random.default_rng(seed)
    given = promises(np.cumprod(rng.random((3, 3)), axis=1))
    step = np.cumsum(np.concatenate([[1.0], rng.exponential(rng.choice([0.02, 0.2, 0.6]), 11)]))
    draft = rng.random(3) * rng.choice([0.0, 0.1, 0.5])
    found = planned(given, step, draft)
    best = found.best()
    tried = max(rate(given, lengths, step, draft) for lengths in product(range(4), repeat=3))
    assert found.tokens[best] / found.seconds[best] == pytest.approx(tried)
    assert rate(given, found.lengths(best), step, draft) == pytest.approx(tried)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_plan_says_of_itself_is_so(seed):
    rng = np.random.default_rng(seed)
    given = promises(np.cumprod(rng.random((4, 5)), axis=1))
    step, draft = np.linspace(1, 3, 22), np.array([0.1, 0.2, 0.01])
    found = planned(given, step, draft)
    for size in range(21):
        lengths = found.lengths(size)
        assert sum(lengths) == size == found.rows[size]
        assert found.tokens[size] / found.seconds[size] == pytest.approx(rate(given, lengths, step, draft))
    assert found.losses(found.best()).min() == pytest.approx(0, abs=1e-12)


def test_one_request_s_long_draft_is_not_made_where_each_place_costs_a_pass():
    """The second request would bring a fourth pass that pays for nobody else."""
    alike = [[0.8, 0.64, 0.51, 0.0]] * 8
    found = planned(promises([*alike, [0.85, 0.72, 0.61, 0.52]]), np.full(50, 1.0), (0, 0.5, 0))
    assert max(found.lengths(found.best())) <= 3


def test_limits_and_room_are_kept():
    given = promises([[0.9, 0.8, 0.7]] * 3)
    found = planned(given, np.ones(12), limits=[0, 1, 3], most_tokens=3)
    assert found.lengths(found.best()) == [0, 1, 2]
    assert planned(given, np.ones(12), most_tokens=0).best() == 0
    assert planned(given, np.ones(12), limits=[0, 0, 0]).lengths(0) == [0, 0, 0]


def test_tokens_that_are_seldom_there_are_seldom_verified():
    """Half of the drafts come, so that half of them are to be paid for."""
    found = planned(promises([[0.45]], delivered=[[0.5]]), [1.0, 1.8, 2.6])
    assert found.rows[1] == 0.5
    assert found.seconds[1] == pytest.approx(1.4)
    assert found.best() == 1


def test_a_whole_tree_counts_with_all_its_tokens():
    found = planned(promises([[1.6], [1.6]], delivered=[[5.0], [5.0]]), np.linspace(1, 2, 12))
    assert found.rows.tolist() == [0, 5, 10]
    assert found.seconds[2] == pytest.approx(1 + 10 / 11)
    assert found.lengths(2) == [1, 1]


def test_whoever_is_dear_to_begin_with_comes_last():
    found = planned(promises([[0.9, 0.8], [0.5, 0.4]], entry=[10.0, 0.0]), np.full(6, 1.0))
    assert found.lengths(found.best()) == [0, 2]


@pytest.mark.parametrize(("bias", "best"), [(0.0, 1), (0.04, 1), (0.06, 0), (-0.5, 1)])
def test_drafting_must_be_better_by_the_bias(bias, best):
    found = planned(promises([[0.05]]), [1.0, 1.0, 1.0])
    assert found.gain(1) == pytest.approx(1.05)
    assert found.best(bias) == best
