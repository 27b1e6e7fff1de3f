"""The sizes of trees that scheduler and KV manager learn from a section."""

import pytest

from vllm_spec_plugin.proposers.draft_model.autoregressive import AutoregressiveConfig
from vllm_spec_plugin.proposers.node_order import NodeOrder


@pytest.mark.parametrize("branches", [(1,), (3,), (2, 2, 1), (3, 2, 1, 1)], ids=str)
def test_blocks_are_for_all_nodes_that_are_drafted(branches: tuple[int, ...]) -> None:
    tree = NodeOrder.of_branches(branches).tree
    fixed = AutoregressiveConfig(method="any", model="org/small", branches=branches)
    drafted = [tree.first(n) for n in range(tree.num_nodes + 1)]
    assert fixed.branch_shapes == tuple((len(part.chains), part.depth) for part in drafted)
    assert fixed.tree_size(64) == (tree.num_nodes, len(branches))
    by_confidence = AutoregressiveConfig(method="any", model="org/small", branches=branches, nodes="confidence")
    drafted = [tree.within(n) for n in range(len(branches) + 1)]
    assert by_confidence.branch_shapes == tuple((len(part.chains), part.depth) for part in drafted)
    assert by_confidence.tree_size(2) == (min(2, tree.num_nodes), len(branches))
    assert by_confidence.draft_sampling == "greedy"
    assert fixed.num_branches == len(tree.chains)


def test_without_branches_drafts_are_chains() -> None:
    config = AutoregressiveConfig(method="any", model="org/small")
    assert config.branch_shapes == ()
    assert config.tree_size(5) == (5, 5)
    assert config.tree_order(3) == (-1, 0, 1)
    assert not config.drafts_trees
