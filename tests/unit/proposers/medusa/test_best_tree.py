"""The best tree against all trees, and its expectation against guesses that come true or not."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.proposers.medusa.best_tree import best_choices, expected_acceptance_length, path_probability
from vllm_spec_plugin.verification.topology import by_priority, chain, topology

ACCURACY = [[0.6, 0.2, 0.1], [0.5, 0.2], [0.4]]


def all_trees(num_nodes, widths):
    """Every tree of at most that many nodes with at most `widths[d]` children at depth d."""
    latest: set[frozenset[tuple[int, ...]]] = {frozenset()}
    trees = latest
    for _ in range(num_nodes):
        latest = {
            tree | {(*parent, rank)}
            for tree in latest
            for parent in [(), *tree]
            if len(parent) < len(widths)
            for rank in range(widths[len(parent)])
        }
        trees = trees | latest
    return trees


@st.composite
def heads(draw):
    """Two or three heads of up to three ranks, whose accuracies sum to at most 1, in no order."""
    accuracy = []
    for _ in range(draw(st.integers(2, 3))):
        weights = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
        accuracy.append([weight / (sum(weights) + draw(st.integers(1, 20))) for weight in weights])
    return accuracy


@st.composite
def measured(draw, accuracy):
    """Joint probabilities of some paths, closed under prefixes, children summing to less than their parent."""
    paths = {}

    def measure(parent, probability):
        if len(parent) == len(accuracy) or not draw(st.booleans()):
            return
        ranks = range(len(accuracy[len(parent)]))
        weights = [draw(st.integers(1, 9)) for _ in ranks]
        for rank, weight in zip(ranks, weights, strict=True):
            paths[(*parent, rank)] = probability * weight / (sum(weights) + 3)
            measure((*parent, rank), paths[(*parent, rank)])

    measure((), 1.0)
    return paths


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data(), heads(), st.integers(0, 4), st.integers(1, 3))
def test_no_tree_of_as_many_nodes_promises_more(data, accuracy, num_nodes, max_depth):
    paths = data.draw(measured(accuracy))
    best = best_choices(num_nodes, max_depth, accuracy, paths)
    widths = [len(ranks) for ranks in accuracy][:max_depth]
    rivals = [expected_acceptance_length(tree, accuracy, paths) for tree in all_trees(num_nodes, widths)]
    assert expected_acceptance_length(best, accuracy, paths) == pytest.approx(max(rivals))
    assert topology(best).choices == tuple(sorted(best))
    assert len(by_priority(best).choices) == len(best), "parents come first"
    assert topology(best).depth <= max_depth


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), heads())
def test_no_path_is_likelier_than_its_beginning(data, accuracy):
    paths = data.draw(measured(accuracy))
    for path in itertools.product(*(range(len(ranks)) for ranks in accuracy)):
        along = [path_probability(path[:end], accuracy, paths) for end in range(len(path) + 1)]
        assert along == sorted(along, reverse=True)
        assert along[0] == 1


def test_the_expectation_by_hand():
    assert expected_acceptance_length([], ACCURACY) == 1
    assert expected_acceptance_length([(0,), (1,)], ACCURACY) == pytest.approx(1 + 0.6 + 0.2)
    assert expected_acceptance_length(chain(3).choices, ACCURACY) == pytest.approx(1 + 0.6 + 0.3 + 0.12)
    joint = {(0,): 0.6, (0, 0): 0.4}
    assert expected_acceptance_length(chain(3).choices, ACCURACY, joint) == pytest.approx(1 + 0.6 + 0.4 + 0.4 * 0.4)
