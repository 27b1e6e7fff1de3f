"""The algorithms themselves: over every draft and every test, texts are distributed as the target's. No sampling."""

import functools
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.unit.random_cases import random_cases
from tests.v1.verification import block_oracle
from tests.v1.verification.block_oracle import Drafting, continuations, random_drafting
from tests.v1.verification.tree_oracle import (
    all_drafts,
    chain_distribution,
    context,
    output_distribution,
    text_distribution,
)
from vllm_spec_plugin.proposers.base import Draft
from vllm_spec_plugin.v1.drafting.pending_drafts import as_cut, tokens_to_send
from vllm_spec_plugin.verification.topology import by_priority, topology

sizes = pytest.mark.parametrize(("vocab_size", "depth"), [(2, 1), (2, 3), (3, 2), (3, 3)])


@sizes
@pytest.mark.parametrize("stops", [0.0, 0.4], ids=["", "stopping"])
@pytest.mark.parametrize("method", [block_oracle.output_distribution, chain_distribution], ids=["block", "token"])
@random_cases(20, 200)
def test_texts_of_chains_are_distributed_exactly_as_the_targets(rng, vocab_size, depth, method, stops):
    """Also where what was drafted so far decides whether another token is."""
    drafting = random_drafting(rng, vocab_size, depth, stops)
    expected = dict(continuations(drafting.target, (), depth + 1))
    assert dict(drafting.texts(depth + 1, method)) == expected


@sizes
@random_cases(20, 200)
def test_by_blocks_no_fewer_tokens_are_accepted_than_token_by_token(rng, vocab_size, depth):
    drafting = random_drafting(rng, vocab_size, depth)
    by_token = drafting.survival(depth, chain_distribution)
    assert all(block >= token for block, token in zip(drafting.survival(depth), by_token, strict=True))


def test_by_blocks_more_tokens_are_accepted():
    """The paper's example: p = (1/3, 2/3) and q = (2/3, 1/3) everywhere, two draft tokens: 11/9 over 10/9."""
    third = Fraction(1, 3)
    drafting = Drafting(lambda _: (third, 2 * third), lambda _: (2 * third, third), lambda before: len(before) < 2)
    assert sum(drafting.survival(2, chain_distribution)) == 10 * third / 3
    assert sum(drafting.survival(2)) == 11 * third / 3


VOCAB = 3
TREES = {
    "pair": topology([(0,), (1,)]),
    "bushy": topology([(0,), (1,), (2,), (0, 0)]),
    "deep": topology([(0,), (0, 0), (0, 1), (0, 0, 0), (1,)]),
}
ORDER = by_priority([(0,), (1,), (0, 0), (1, 0), (0, 1)])


def table(name, start, zeros=0):
    """A model: a fixed random distribution per context, but `start` without one; its last `zeros` tokens impossible."""

    @functools.cache
    def distribution(context):
        weights = np.array(start)
        if context:
            weights = np.random.default_rng([ord(name), len(context), *context]).dirichlet(np.ones(VOCAB))
        weights[VOCAB - zeros :] = 0
        return weights / weights.sum()

    return distribution


# At the start a first rejection leaves two tokens, so that what the second sibling does matters.
START = (0.1, 0.4, 0.5)
TARGET, DRAFT = table("p", START), table("q", (0.6, 0.3, 0.1))


def independent(context, earlier):
    return DRAFT(context)


def without_replacement(context, earlier):
    weights = DRAFT(context).copy()
    weights[earlier] = 0
    return weights / weights.sum()


def most_likely_ones(context, earlier):
    return np.eye(VOCAB)[np.argsort(-DRAFT(context))[len(earlier)]]


def the_most_likely_then_others(context, earlier):
    return (without_replacement if earlier else most_likely_ones)(context, earlier)


def a_draw_then_the_most_likely(context, earlier):
    return (most_likely_ones if earlier else independent)(context, earlier)


PROPOSERS = [
    independent,
    without_replacement,
    most_likely_ones,
    the_most_likely_then_others,
    a_draw_then_the_most_likely,
]


def distance(texts, target, length):
    """The largest distance of a text's probability from the target's."""
    expected = defaultdict(float, continuations(target, (), length))
    return max(abs(texts[text] - expected[text]) for text in texts.keys() | expected.keys())


@pytest.mark.parametrize("zeros", [0, 1], ids=["", "a token is impossible"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("draw", PROPOSERS)
def test_texts_of_trees_are_distributed_as_the_targets(tree, draw, zeros):
    target, length = table("p", START, zeros), TREES[tree].depth + 1
    assert distance(text_distribution(TREES[tree], target, draw, length), target, length) < 1e-6


def first_texts(size, draw, num_left):
    """Computes probabilities of texts of two tokens if `num_left` nodes are drafted and `size` of them verified."""
    texts: defaultdict[tuple[int, ...], float] = defaultdict(float)
    tree = ORDER.first(num_left)
    for drafted, tokens, q in all_drafts(tree, draw):
        draft = Draft(tokens, torch.tensor(q), tree)
        cut = as_cut(draft, tokens_to_send(draft)[:size])
        assert cut.tree is not None
        assert isinstance(cut.probs, torch.Tensor)
        p = np.array([TARGET(context(cut.tree, node, cut.token_ids)) for node in range(-1, cut.tree.num_nodes)])
        q_left = cut.probs.numpy().reshape(-1, VOCAB)
        for output, probability in output_distribution(cut.tree, p, cut.token_ids, q_left).items():
            for text, rest in continuations(TARGET, output[:2], 2):
                texts[text] += drafted * probability * rest
    return texts


@pytest.mark.parametrize("size", range(ORDER.num_nodes + 1))
@pytest.mark.parametrize("draw", [without_replacement, most_likely_ones, the_most_likely_then_others])
def test_trees_drafted_or_cut_to_any_size_leave_the_target(size, draw):
    for num_left in (size, ORDER.num_nodes):
        assert distance(first_texts(size, draw, num_left), TARGET, 2) < 1e-6
