"""Trees on a runner: vLLM's positions, slots and cache are mended before a step, and joined after it.

The simulated cache knows of every slot the whole text that it was computed from, and is read as an attention layer
does: through a sequence's block table, from its first position to the token's own.
"""

from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.unit.random_cases import random_cases
from tests.v1.tree_steps import PagedCache, Verifying, block_tables, filled, prefixes, random_step
from vllm_spec_plugin.v1.trees import lay_out
from vllm_spec_plugin.verification.topology import chain, topology

FORK = topology([[0], [0, 0], [1], [1, 0], [2]])
NOTHING = -1


class Attention:
    """Attention layers of which only the cache is there."""

    group = 0

    def __init__(self, block_size):
        self.block_size, self.cache = block_size, PagedCache(block_size)
        self.shared: tuple[list[int], list[int]] = ([], [])

    def copy_blocks(self, copies):
        self.copies = [*copies]
        self.cache.copy(copies)

    def share(self, tokens, slots):
        self.shared = (tokens.tolist(), slots.tolist())

    def stop_sharing(self):
        self.shared = ([], [])

    def metadata(self, *given):
        return given


class Scene:
    """A runner with these requests, as vLLM prepares a step of them."""

    def __init__(self, requests, block_size=4):
        self.attention = cast("Any", Attention(block_size))
        self.requests = requests
        self.trees: Any = None
        self.cache = self.attention.cache
        self.cache.slots.update(filled(requests, block_size).slots)
        positions = [
            position
            for request in requests
            for position in range(request.num_computed, request.length + request.tree.num_nodes)
        ]
        slots = [
            self.cache.slot(request.blocks, position)
            for request in requests
            for position in range(request.num_computed, request.length + request.tree.num_nodes)
        ]
        self.slots = torch.tensor(slots)
        table = SimpleNamespace(
            block_table=SimpleNamespace(np=block_tables(requests)), slot_mapping=SimpleNamespace(gpu=self.slots)
        )
        batch = SimpleNamespace(
            req_ids=[f"r{request.row}" for request in requests],
            num_computed_tokens_cpu=np.array([request.num_computed for request in requests]),
            block_table=[table],
        )
        self.runner: Any = SimpleNamespace(
            input_batch=batch, positions=torch.tensor(positions), device=torch.device("cpu")
        )
        self.num_scheduled = {f"r{request.row}": request.step_request.num_tokens for request in requests}
        self.forks = {f"r{request.row}": (request.forks, request.fork_size) for request in requests if request.forks}

    def prepare(self):
        trees = [request.tree for request in self.requests]
        self.trees = lay_out(self.attention, self.runner, self.num_scheduled, trees, self.forks)
        return self

    def forward(self):
        """Writes what the layers would, each slot for one request and with one content."""
        tokens = [(words, request) for request in self.requests for words in request.tokens]
        written: dict[int, tuple[object, ...]] = {}
        own = zip(self.slots.tolist(), tokens, strict=True)
        shared = [(slot, tokens[token]) for token, slot in zip(*self.attention.shared, strict=True)]
        for slot, (words, request) in [*own, *shared]:
            assert written.setdefault(slot, words) == words
            assert slot // self.attention.block_size in {*request.blocks, *request.forks}
        self.cache.slots.update(written)
        return self

    def assert_seen(self):
        """Checks that every token sees the text, its ancestors and itself, at its position in the text."""
        tokens = [(words, request) for request in self.requests for words in request.tokens]
        starts, lengths, tables, *_ = self.trees.metadata(len(tokens), self.slots)
        assert (starts[0], starts[-1]) == (0, len(tokens))
        for (start, stop), length, table in zip(pairwise(starts.tolist()), lengths.tolist(), tables, strict=True):
            assert start < stop, "a sequence without queries"
            assert len({request.row for _, request in tokens[start:stop]}) == 1
            for token, end in zip(range(start, stop), range(length - (stop - start) + 1, length + 1), strict=True):
                words, request = tokens[token]
                left_out = range(request.first_left_out(self.attention.block_size), request.tree.num_nodes)
                if words not in [request.words(node) for node in left_out]:
                    assert self.cache.read(table.tolist(), end) == prefixes(words)
                    assert self.runner.positions[token] == len(words) - 1


def one(tree=FORK, forks=(21, 22), length=6):
    return Verifying(0, length, length - 1, tree, (11, 12, 13, 14), forks, 1)


@pytest.mark.parametrize("block_size", [2, 3, 4, 16])
@random_cases(50, 500)
def test_a_step_ends_with_the_accepted_ways_in_the_requests_own_blocks(rng, block_size):
    chance = Random(int(rng.integers(2**32)))
    requests = random_step(chance, block_size)
    scene = Scene(requests, block_size).prepare().forward()
    if scene.trees:
        scene.assert_seen()
    nodes = [
        chance.randrange(-1, request.first_left_out(block_size)) if len(request.tree.chains) > 1 else -1
        for request in requests
    ]
    accepted = scene.trees.join(torch.tensor(nodes)) if scene.trees else {}
    trees = {request.row: request.tree for request in requests if len(request.tree.chains) > 1}
    assert accepted == {row: tree.path_to(nodes[row]) for row, tree in trees.items()}
    for request, node in zip(requests, nodes, strict=True):
        words = request.words(node)
        assert scene.cache.read(request.blocks, len(words)) == prefixes(words)
    assert scene.attention.shared == ([], [])


def test_a_step_of_chains_is_left_to_vllm():
    scene = Scene([one(chain(3), ()), Verifying(1, 6, 5, chain(0), (15, 16))])
    before = scene.slots.clone()
    scene.prepare()
    assert scene.trees is None
    assert torch.equal(scene.slots, before)
    assert scene.runner.positions.tolist() == [5, 6, 7, 8, 5]


def test_drafts_that_could_not_be_computed_are_no_drafts():
    """Drops the last branch of the first request, and all but the trunk of the third."""
    requests = [
        one(forks=(21,)),
        Verifying(1, 6, 5, chain(2), (15, 16)),
        Verifying(2, 6, 5, FORK, (17, 18, 19)),
        Verifying(3, 6, 5, FORK, (30, 31, 32), (33, 34), 1),
    ]
    trees = Scene(requests).prepare().trees
    drafts = torch.arange(5 + 2 + 5 + 5)
    kept = trees.without_left_out(drafts, NOTHING)
    assert kept.tolist() == [0, 1, 2, 3, NOTHING, 5, 6, 7, 8, *[NOTHING] * 3, *range(12, 17)]
    assert drafts.tolist() == list(range(17))
