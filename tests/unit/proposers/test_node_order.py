"""Nodes by path probability: each prefix is a tree, and what the scheduler knows of it is so."""

import itertools
from random import Random

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.node_order import NodeOrder, default_probability
from vllm_spec_plugin.verification.topology import topology


def random_order(chance):
    """A tree of up to 12 nodes whose measured probabilities follow no rule."""
    paths: list[tuple[int, ...]] = [()]
    for _ in range(chance.randint(0, 12)):
        parent = chance.choice(paths)
        taken = [path[-1] for path in paths if path and path[:-1] == parent]
        paths.append((*parent, max(taken, default=-1) + chance.choice([1, 1, 2])))
    measured = {path: chance.choice([0.0, 0.5, chance.random()]) for path in paths}
    return NodeOrder.by_probability(paths[1:], measured.__getitem__)


def orders():
    chance = Random(0)
    return [random_order(chance) for _ in range(100)]


def test_every_prefix_is_a_tree_of_siblings_by_rank():
    for order in orders():
        for at, path in enumerate(order.paths):
            before = order.paths[:at]
            assert path[:-1] in ((), *before)
            assert order.parents[at] == (before.index(path[:-1]) if len(path) > 1 else -1)
            assert all(other in before for other in order.paths if other[:-1] == path[:-1] and other < path)


def test_a_prefix_is_the_tree_of_its_nodes():
    for order in orders():
        for count in range(len(order.paths) + 1):
            tree = order.tree.first(count)
            assert tree.choices == topology(order.paths[:count]).choices
            assert sorted(tree.numbers) == list(range(count))


def test_more_probable_nodes_come_first():
    paths = [path for depth in (1, 2, 3) for path in itertools.product(range(2), repeat=depth)]
    order = NodeOrder.by_probability(paths, default_probability)
    probabilities = [default_probability(path) for path in order.paths]
    assert probabilities == sorted(probabilities, reverse=True)
    assert order.paths[:5] == ((0,), (0, 0), (0, 0, 0), (1,), (0, 1))


@pytest.mark.parametrize(
    ("proposer", "parents"),
    [
        ({"method": "ngram"}, (-1, 0, 1, 2, 3, 4, 5, 6)),
        ({"method": "draft_model", "model": "draft"}, (-1, 0, 1, 2, 3, 4, 5, 6)),
        ({"method": "medusa", "model": "heads"}, (-1, 0, 1, 2, 3, 4, 5, 6)),
        ({"method": "medusa", "tree": "auto", "draft_sampling": "probabilistic"}, (-1, 0, 1, 2, -1, -1, 0, 4)),
        ({"method": "medusa", "tree": [[0], [1], [0, 0]]}, (-1, 0, -1)),
    ],
    ids=str,
)
def test_the_scheduler_knows_the_order_by_the_configuration(proposer, parents):
    data = {
        "proposer": {"model": str(model_path("medusa"))} | proposer,
        "draft_length": {"policy": "fixed", "tokens": 8},
    }
    if proposer["method"] == "ngram":
        del data["proposer"]["model"]
    [config] = parse_config(data, "spec.yaml").proposers
    assert config.tree_order(8) == parents
