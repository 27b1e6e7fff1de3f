"""The algorithm itself: over everything that may be drafted, the text is distributed as the target's. No sampling."""

import functools
from collections import defaultdict

import numpy as np
import pytest
import torch

from tests.v1.verification.block_oracle import continuations
from tests.v1.verification.tree_oracle import all_drafts, context, output_distribution, text_distribution
from vllm_spec_plugin.proposers.base import Draft
from vllm_spec_plugin.v1.drafting.pending_drafts import as_cut, tokens_to_send
from vllm_spec_plugin.verification.topology import by_priority, chain, topology

VOCAB = 3
BUSHY = topology([(0,), (1,), (2,), (0, 0)])
DEEP = topology([(0,), (0, 0), (0, 1), (0, 0, 0), (1,)])
PAIR = topology([(0,), (1,)])
ORDER = by_priority([(0,), (1,), (0, 0), (1, 0), (0, 1)])


def table(name, start, zeros=0):
    """A language model over VOCAB tokens: a fixed random distribution per context, but `start` without one.

    The last `zeros` tokens are impossible.
    """

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
TARGET, DRAFT, OTHER_DRAFT = table("p", START), table("q", (0.6, 0.3, 0.1)), table("r", (0.2, 0.7, 0.1))


def independent(context, earlier):
    return DRAFT(context)


def without_replacement(context, earlier):
    weights = DRAFT(context).copy()
    weights[earlier] = 0
    return weights / weights.sum()


def one_per_draft_model(context, earlier):
    return (DRAFT, OTHER_DRAFT, DRAFT)[len(earlier)](context)


def most_likely_ones(context, earlier):
    return np.eye(VOCAB)[np.argsort(-DRAFT(context))[len(earlier)]]


def always_the_same(context, earlier):
    return np.eye(VOCAB)[int(DRAFT(context).argmax())]


def the_most_likely_then_others(context, earlier):
    return without_replacement(context, earlier) if earlier else np.eye(VOCAB)[int(DRAFT(context).argmax())]


def drawn_after_the_first_level(context, earlier):
    return (independent if context else most_likely_ones)(context, earlier)


def a_draw_then_the_most_likely(context, earlier):
    return most_likely_ones(context, earlier) if earlier else DRAFT(context)


PROPOSERS = [
    independent,
    without_replacement,
    one_per_draft_model,
    most_likely_ones,
    always_the_same,
    the_most_likely_then_others,
    drawn_after_the_first_level,
    a_draw_then_the_most_likely,
]


def distance_from_target(tree, target, draw):
    """Computes the largest distance of a text's probability from the target's."""
    length = tree.depth + 1
    return distance(text_distribution(tree, target, draw, length), target, length)


def distance(texts, target=TARGET, length=2):
    """The same of texts that are given."""
    expected = defaultdict(float, continuations(target, (), length))
    return max(abs(texts[text] - expected[text]) for text in texts.keys() | expected.keys())


@pytest.mark.parametrize("tree", [PAIR, BUSHY, DEEP, chain(2)], ids=["pair", "bushy", "deep", "chain"])
@pytest.mark.parametrize("draw", PROPOSERS)
def test_texts_are_distributed_as_the_target(tree, draw):
    assert distance_from_target(tree, TARGET, draw) < 1e-6


def first_texts(size, draw, num_left):
    """Computes probabilities of texts of two tokens if `num_left` nodes are drafted and `size(tokens)` verified."""
    texts: defaultdict[tuple[int, ...], float] = defaultdict(float)
    tree = ORDER.first(num_left)
    for drafted, tokens, q in all_drafts(tree, draw):
        draft = Draft(tokens, torch.tensor(q), tree)
        cut = as_cut(draft, tokens_to_send(draft)[: size(tokens)])
        assert cut.tree is not None
        assert isinstance(cut.probs, torch.Tensor)
        ways = [context(cut.tree, node, cut.token_ids) for node in range(-1, cut.tree.num_nodes)]
        p = np.array([TARGET(way) for way in ways])
        q_left = cut.probs.numpy().reshape(-1, VOCAB)
        for output, probability in output_distribution(cut.tree, p, cut.token_ids, q_left).items():
            for text, rest in continuations(TARGET, output[:2], 2):
                texts[text] += drafted * probability * rest
    return texts


@pytest.mark.parametrize("size", range(ORDER.num_nodes + 1))
@pytest.mark.parametrize("draw", [without_replacement, most_likely_ones, the_most_likely_then_others])
def test_trees_drafted_or_cut_to_any_size_leave_the_target(size, draw):
    assert distance(first_texts(lambda tokens: size, draw, size)) < 1e-6
    assert distance(first_texts(lambda tokens: size, draw, ORDER.num_nodes)) < 1e-6


@pytest.mark.parametrize("draw", PROPOSERS)
def test_impossible_tokens_stay_impossible(draw):
    assert distance_from_target(DEEP, table("p", START, zeros=1), draw) < 1e-6
