"""Which tree is drafted."""

import pytest

from vllm_spec_plugin.proposers.medusa.best_tree import best_choices
from vllm_spec_plugin.proposers.medusa.checkpoint import HeadsConfig
from vllm_spec_plugin.proposers.medusa.shape import describe, node_order
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.node_order import NodeOrder

ACCURACY = ((0.6, 0.2, 0.05) + (0.0,) * 7, (0.5, 0.3, 0.1) + (0.0,) * 7)


HEADS = HeadsConfig(num_heads=2, num_layers=1, hidden_size=8, vocab_size=10)
MEASURED = HeadsConfig(num_heads=2, num_layers=1, hidden_size=8, vocab_size=10, accuracy=ACCURACY)


def test_a_list_of_paths_is_that_tree_by_measured_probability_or_by_rank():
    paths = ((2,), (0, 1), (0, 0), (0,), (1,))
    assert node_order(paths, 5, HEADS, draws=False).paths == ((0,), (0, 0), (1,), (0, 1), (2,))
    assert node_order(paths, 5, MEASURED, draws=False).paths == ((0,), (0, 0), (1,), (0, 1), (2,))
    accuracy = ((0.5, 0.4, 0.3) + (0.0,) * 7, (0.5, 0.1) + (0.0,) * 8)
    heads = HeadsConfig(2, 1, 8, 10, accuracy=accuracy)
    assert node_order(paths, 5, heads, draws=False).paths == ((0,), (1,), (2,), (0, 0), (0, 1))


@pytest.mark.parametrize("num_tokens", [1, 3, 6])
def test_auto_is_the_best_tree_of_each_number_of_tokens(num_tokens):
    order = node_order("auto", 6, MEASURED, draws=False)
    assert set(order.paths[:num_tokens]) == set(best_choices(num_tokens, 2, ACCURACY, {}))
    assert node_order("auto", num_tokens, MEASURED, draws=False).paths == order.paths[:num_tokens]


def test_auto_goes_by_the_mean_of_greedy_requests_and_of_how_others_draft():
    paths = {
        "greedy": {(0,): 0.9, (0, 0): 0.8, (1,): 0.05},
        "sampled": {(0,): 0.3, (1,): 0.2, (0, 0): 0.1},
        "drawn": {(0,): 0.5, (0, 0): 0.1, (0, 1): 0.09, (1,): 0.95},
    }
    # Where nothing was measured jointly, nothing is right.
    heads = HeadsConfig(2, 1, 8, 10, accuracy=((0.0,) * 10,) * 2, paths=paths)
    certain, drawn = (node_order("auto", 3, heads, draws=draws) for draws in (False, True))
    assert certain.paths == ((0,), (0, 0), (1,))
    assert drawn.paths == ((0,), (1,), (0, 0))
    assert "greedy: 2.75, sampled: 1.60" in describe(certain, heads, draws=False)
    assert "greedy: 2.75, drawn: 2.55" in describe(drawn, heads, draws=True)
    assert describe(NodeOrder(((0,),)), HEADS, draws=False) == "1 tokens"


def test_the_best_tree_of_heads_that_were_not_measured_is_unknown():
    with pytest.raises(UnreadableError, match="measured"):
        node_order("auto", 4, HEADS, draws=False)
