"""The algorithm itself: over every draft and every test, texts are distributed as the target's, in fractions."""

from fractions import Fraction

import pytest

from tests.unit.random_cases import random_cases
from tests.v1.verification.block_oracle import Drafting, continuations, output_distribution, random_drafting
from tests.v1.verification.tree_oracle import chain_distribution

SIZES = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize(("vocab_size", "depth"), SIZES)
@pytest.mark.parametrize("stops", [0.0, 0.4], ids=["", "stopping"])
@pytest.mark.parametrize("method", [output_distribution, chain_distribution], ids=["block", "token"])
@random_cases(20, 200)
def test_texts_are_distributed_exactly_as_the_targets(rng, vocab_size, depth, method, stops):
    """Also where what was drafted so far decides whether another token is."""
    drafting = random_drafting(rng, vocab_size, depth, stops)
    expected = dict(continuations(drafting.target, (), depth + 1))
    assert dict(drafting.texts(depth + 1, method)) == expected


@pytest.mark.parametrize(("vocab_size", "depth"), SIZES)
@random_cases(20, 200)
def test_no_fewer_tokens_are_accepted_than_token_by_token(rng, vocab_size, depth):
    drafting = random_drafting(rng, vocab_size, depth)
    by_token = drafting.survival(depth, chain_distribution)
    for block, token in zip(drafting.survival(depth), by_token, strict=True):
        assert block >= token


def test_more_tokens_are_accepted_than_token_by_token():
    """The paper's example: p = (1/3, 2/3) and q = (2/3, 1/3) everywhere, two draft tokens: 11/9 over 10/9."""
    third = Fraction(1, 3)
    drafting = Drafting(lambda _: (third, 2 * third), lambda _: (2 * third, third), lambda before: len(before) < 2)
    assert sum(drafting.survival(2, chain_distribution)) == 10 * third / 3
    assert sum(drafting.survival(2)) == 11 * third / 3


@random_cases(20, 200)
def test_longer_drafts_leave_how_often_the_first_tokens_are_accepted(rng):
    """Acceptance of position i does not depend on K: the draft-length policy and replays rely on it."""
    drafting = random_drafting(rng, 2, 4)
    longest = drafting.survival(4)
    for depth in (1, 2, 3):
        shorter = Drafting(drafting.target, drafting.draft, lambda before, depth=depth: len(before) < depth)
        assert shorter.survival(depth) == longest[:depth]
