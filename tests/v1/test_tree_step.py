"""Ordinary causal attention over the blocks of a step is tree attention: simulated slot by slot.

The simulation knows of every slot the whole text that it was computed from, and reads it as an attention layer does:
through a sequence's block table, from its first position to the token's own.
"""

import functools
from random import Random

import numpy as np
import pytest

from tests.v1.tree_steps import (
    PagedCache,
    Verifying,
    block_tables,
    filled,
    prefixes,
    random_step,
    written,
)
from vllm_spec_plugin.v1.tree_step import TreeStep, plan_tree_step
from vllm_spec_plugin.verification.topology import topology

NUM_STEPS = 50
BLOCK_SIZES = [2, 3, 4, 16]

block_sizes = pytest.mark.parametrize("block_size", BLOCK_SIZES)


def plan(requests: list[Verifying], block_size: int) -> TreeStep:
    step_requests = [request.step_request for request in requests]
    return plan_tree_step(step_requests, block_tables(requests), block_size)


@functools.cache
def steps(block_size: int) -> list[tuple[list[Verifying], TreeStep]]:
    """Random ones, the same each time."""
    chance = Random(str(block_size))
    drawn = [random_step(chance, block_size) for _ in range(NUM_STEPS)]
    return [(requests, plan(requests, block_size)) for requests in drawn]


def computed(requests: list[Verifying], step: TreeStep, block_size: int) -> PagedCache:
    """The cache after the step's forward pass."""
    cache = filled(requests, block_size)
    cache.copy(step.copies)
    for slot, words, _ in written(step, requests, block_size):
        cache.slots[slot] = words
    return cache


def can_be_verified(words: tuple[object, ...], request: Verifying, block_size: int) -> bool:
    return words not in [request.words(n) for n in range(request.first_left_out(block_size), request.tree.num_nodes)]


@block_sizes
def test_every_token_sees_the_text_its_ancestors_and_itself(block_size: int) -> None:
    for requests, step in steps(block_size):
        cache = computed(requests, step, block_size)
        tokens = [(words, request) for request in requests for words in request.tokens]
        assert step.query_start[0] == 0
        assert step.query_start[-1] == len(tokens)
        for start, stop, length, table in zip(
            step.query_start[:-1], step.query_start[1:], step.lengths, step.tables, strict=True
        ):
            assert start < stop, "a sequence without queries"
            assert len({request.row for _, request in tokens[start:stop]}) == 1
            for end, (words, request) in zip(
                range(length - (stop - start) + 1, length + 1), tokens[start:stop], strict=True
            ):
                if can_be_verified(words, request, block_size):
                    assert cache.read(table, end) == prefixes(words)


@block_sizes
def test_rotary_positions_are_those_in_the_text(block_size: int) -> None:
    for requests, step in steps(block_size):
        tokens = [words for request in requests for words in request.tokens]
        branched = [request for request in requests if len(request.tree.chains) > 1]
        expected = {
            token: len(words) - 1
            for token, words in enumerate(tokens)
            for request in branched
            if words in [request.words(node) for node in range(request.first_left_out(block_size))]
        }
        assert dict(zip(step.nodes.tolist(), step.positions.tolist(), strict=True)) == expected
        assert len(step.nodes) == len(expected)


@block_sizes
def test_no_slot_is_written_twice_with_different_content_or_belongs_to_somebody_else(block_size: int) -> None:
    for requests, step in steps(block_size):
        contents: dict[int, tuple[object, ...]] = {}
        for slot, words, request in written(step, requests, block_size):
            assert contents.setdefault(slot, words) == words
            assert slot // block_size in {*request.blocks, *request.forks}
        owners = {block: request for request in requests for block in request.blocks}
        for source, target in step.copies:
            assert target in owners[source].forks


@block_sizes
def test_joining_leaves_the_accepted_way_in_the_requests_own_blocks(block_size: int) -> None:
    for requests, step in steps(block_size):
        cache = computed(requests, step, block_size)
        for request in requests:
            branched = step.branched.get(request.row)
            assert (branched is None) == (len(request.tree.chains) < 2)
            if branched is None:
                assert cache.has(request.words(request.tree.num_nodes - 1), request.blocks)
                continue
            assert branched.num_nodes == request.first_left_out(block_size)
            for node in range(-1, branched.num_nodes):
                copies = branched.join(node, block_size)
                assert cache.after(copies).has(request.words(node), request.blocks)
                assert {source for source, _ in copies} <= set(request.forks)
                assert {target for _, target in copies} <= set(request.blocks)


def test_where_blocks_begin_with_the_steps_tokens_nothing_is_copied() -> None:
    tree = topology([[0], [1]])
    for length, num_computed, copies in [(8, 7, []), (9, 8, []), (9, 7, []), (10, 9, [(13, 21)])]:
        request = Verifying(0, length, num_computed, tree, (11, 12, 13, 14), (21,), 1)
        assert plan([request], 4).copies == copies


def test_the_batchs_own_tables_are_not_written() -> None:
    for seed in range(20):
        requests = random_step(Random(seed), 3)
        tables = block_tables(requests)
        before = tables.copy()
        plan_tree_step([request.step_request for request in requests], tables, 3)
        np.testing.assert_array_equal(tables, before)
