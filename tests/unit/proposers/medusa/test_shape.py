"""Which tree is drafted."""

import pytest

from vllm_spec_plugin.proposers.medusa.best_tree import best_choices
from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaCheckpointError, MedusaConfig
from vllm_spec_plugin.proposers.medusa.shape import draft_shapes
from vllm_spec_plugin.verification.topology import chain, topology

ACCURACY = ((0.6, 0.2, 0.05) + (0.0,) * 7, (0.5, 0.3, 0.1) + (0.0,) * 7)


def draft_shape(wanted, num_tokens, heads):
    """The tree of greedy requests."""
    return draft_shapes(wanted, num_tokens, heads, draws=False).greedy


HEADS = MedusaConfig(num_heads=2, num_layers=1, hidden_size=8, vocab_size=10)
MEASURED = MedusaConfig(num_heads=2, num_layers=1, hidden_size=8, vocab_size=10, accuracy=ACCURACY)


@pytest.mark.parametrize(("num_tokens", "length"), [(1, 1), (2, 2), (5, 2)])
def test_a_chain_has_a_token_per_head_as_far_as_tokens_go(num_tokens, length):
    assert draft_shape(None, num_tokens, HEADS) is chain(length)


def test_a_list_of_paths_is_that_tree():
    assert draft_shape(((0,), (2,), (0, 1)), 4, HEADS) is topology([[0], [0, 1], [2]])


@pytest.mark.parametrize("num_tokens", [1, 3, 6])
def test_auto_is_the_best_tree_of_so_many_tokens(num_tokens):
    shape = draft_shape("auto", num_tokens, MEASURED)
    assert shape is topology(best_choices(num_tokens, 2, ACCURACY, {}))
    assert shape.num_nodes == num_tokens
    assert shape.depth <= 2


def test_auto_goes_by_measured_paths_where_there_are_any():
    """Independent heads would have (0, 0) third; together these two are never right."""
    paths = {(0,): 0.6, (1,): 0.2, (2,): 0.1, (0, 1): 0.15, (0, 0): 0.0}
    measured = MedusaConfig(2, 1, 8, 10, accuracy=ACCURACY, paths={"greedy": paths})
    assert draft_shape("auto", 2, MEASURED).choices == ((0,), (0, 0))
    assert draft_shape("auto", 2, measured).choices == tuple(best_choices(2, 2, ACCURACY, paths))
    assert draft_shape("auto", 2, measured).choices != ((0,), (0, 0))


def test_sampled_requests_have_a_tree_of_their_own_and_drawn_drafts_another():
    paths = {
        "greedy": {(0,): 0.9, (0, 0): 0.8, (1,): 0.05},
        "sampled": {(0,): 0.3, (1,): 0.2, (0, 0): 0.1},
        "drawn": {(0,): 0.5, (0, 0): 0.1, (0, 1): 0.09, (1,): 0.05},
    }
    # Where nothing was measured jointly, nothing is right.
    heads = MedusaConfig(2, 1, 8, 10, accuracy=((0.0,) * 10,) * 2, paths=paths)
    certain, drawn = (draft_shapes("auto", 3 if draws else 2, heads, draws=draws) for draws in (False, True))
    assert certain.greedy.choices == ((0,), (0, 0))
    assert certain.sampled.choices == ((0,), (1,))
    assert drawn.sampled.choices == ((0,), (0, 0), (0, 1))
    assert certain.expected == pytest.approx((2.7, 1.5))
    assert drawn.expected == pytest.approx((2.75, 1.69))
    assert "2.70 per step expected" in str(certain)


def test_nobody_knows_the_best_tree_of_heads_that_were_not_measured():
    with pytest.raises(MedusaCheckpointError, match="measured"):
        draft_shape("auto", 4, HEADS)
