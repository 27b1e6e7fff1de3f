"""Nodes by path probability: each prefix is a tree, and what the scheduler knows of it is so."""

import numpy as np
import pytest

from tests.unit.verification.topologies import random_topology
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.node_order import NodeOrder


def orders():
    """Trees of up to 12 nodes whose measured probabilities follow no rule."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        paths = random_topology(rng, 12).choices
        measured = {path: rng.choice([0.0, 0.5, rng.random()]) for path in paths}
        yield NodeOrder.by_probability(paths, measured.__getitem__)


def test_every_prefix_is_a_tree_of_siblings_by_rank():
    for order in orders():
        for at, path in enumerate(order.paths):
            before = order.paths[:at]
            assert path[:-1] in ((), *before)
            assert order.parents[at] == (before.index(path[:-1]) if len(path) > 1 else -1)
            assert all(other in before for other in order.paths if other[:-1] == path[:-1] and other < path)


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
