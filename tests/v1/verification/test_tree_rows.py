"""The layout of a step over trees, against walks up the trees."""

import torch

from tests.unit.random_cases import random_cases
from tests.unit.verification.topologies import random_topology
from vllm_spec_plugin.v1.verification.tree_rows import TreeRows


@random_cases(30, 200)
def test_the_context_of_each_row_is_its_path(rng, device):
    trees = [random_topology(rng) for _ in range(rng.integers(6))]
    rows = TreeRows.of(trees, device)
    places = [(i, node) for i, tree in enumerate(trees) for node in range(-1, tree.num_nodes)]
    nodes = [place for place in places if place[1] >= 0]
    width = max((tree.depth for tree in trees), default=0) + 1
    draft_token_ids = torch.tensor(rng.choice([-1, 3, 5, 7], len(nodes)), dtype=torch.int64, device=device)
    context = rows.context(draft_token_ids)

    assert rows.width == width
    assert rows.request.tolist() == [i for i, _ in places]
    assert rows.first.tolist() == [places.index((i, -1)) for i in range(len(trees))]
    assert rows.num_draft_tokens.tolist() == [tree.num_nodes for tree in trees]
    assert rows.draft_start.tolist() == [sum(t.num_nodes for t in trees[:i]) for i in range(len(trees))]
    assert rows.draft_row.tolist() == [places.index((i, trees[i].parents[node])) for i, node in nodes]
    assert rows.ancestors.shape == context.shape == (len(places), width - 1)
    for row, (i, node) in enumerate(places):
        way: list[int] = []
        while node >= 0:
            way.insert(0, nodes.index((i, node)))
            node = trees[i].parents[node]
        assert rows.offset[row] == len(way)
        assert rows.ancestors[row].tolist() == way + [-1] * (width - 1 - len(way))
        assert context[row].tolist() == [int(draft_token_ids[n]) for n in way] + [-1] * (width - 1 - len(way))
