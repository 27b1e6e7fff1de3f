"""What a proposer's drafts promise, request by request, from how they fared so far."""

from typing import Protocol

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceEstimate
from vllm_spec_plugin.scheduling.draft_length.acceptance_counts import promise_chains
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows
from vllm_spec_plugin.scheduling.draft_length.tree_counts import ACCEPTED, DRAFTED, count_trees, promise_trees

# Of chains: drafts that the average of all requests may be worth against a request's own.
_STRENGTHS = (2.0, 6.0, 18.0)
# Of trees: how many of them the average of all requests is worth against a request's own, and what is thought of a
# level before any was verified.
_STRENGTH = 4.0
_FIRST_GUESS = 0.4


class Expectation(Protocol):
    """Learns from verified drafts what the next ones will bring. Requests go by their row.

    Attributes:
        num_places: K.
        is_tree: whether the only place is a whole tree.
    """

    num_places: int
    is_tree: bool

    def learn(self, rows: Ints, asked: Ints, drafted: Ints, accepted: Ints, num_tokens: Ints) -> None:
        """Takes a step of n requests in.

        Args:
            rows: [n], whose; a request may be there more than once, its earlier steps first.
            asked: [n], draft tokens that the proposer was asked for; 0 if its turn did not come.
            drafted: [n], how many it gave that were verified, at most `asked`.
            accepted: [n], how many of them were kept.
            num_tokens: [n], by which the texts grew, with drafts or without: what was seen before counts for less.
        """
        ...

    def promise(self, rows: Ints, there: Floats, gains: Floats, delivered: Floats) -> None:
        """Writes what the next drafts of n requests are expected to bring, for each place: a token, or the whole tree.

        Args:
            rows: [n], whose.
            there: [n], becomes the probability that there is a guess.
            gains: [n, >= K], becomes accepted tokens that asking for the k-th place adds; 0 beyond K.
            delivered: [n, >= K], becomes draft tokens that are to be expected in it; 0 beyond K. Gains per delivered
                token fall along k.
        """
        ...

    @property
    def acceptance(self) -> Floats:
        """[K]: the running average over requests: of a place that it is right if those before it were."""
        ...


class ChainExpectation:
    """Of chains: the k-th token adds the probability that it is there and that it and all before it are right."""

    is_tree = False

    def __init__(self, num_tokens: int, half_life: float, requests: RequestRows) -> None:
        """Knows nothing yet.

        Args:
            num_tokens: K, most draft tokens.
            half_life: output tokens of a request after which what was seen of it counts half.
            requests: whose rows they are.
        """
        self.num_places = num_tokens
        self._right = AcceptanceEstimate(num_tokens, requests, half_life=half_life, strengths=_STRENGTHS)
        # Proposers give all that is asked for until they are seen not to.
        self._there = AcceptanceEstimate(num_tokens, requests, half_life=half_life, initial=0.95)

    def learn(self, rows: Ints, asked: Ints, drafted: Ints, accepted: Ints, num_tokens: Ints) -> None:
        """Takes a step in."""
        self._there.learn(rows, asked, drafted, num_tokens)
        self._right.learn(rows, drafted, accepted, num_tokens)

    def promise(self, rows: Ints, there: Floats, gains: Floats, delivered: Floats) -> None:
        """Gains and probabilities of delivery."""
        promise_chains(*self._there.state, *self._right.state, rows, there, gains, delivered)

    @property
    def acceptance(self) -> Floats:
        """[K]."""
        return self._right.prior


class TreeExpectation:
    """Of trees, which are drafted whole or not at all: how many of their tokens are accepted, on the average.

    A request's means are held to the means of all by `_STRENGTH` trees.
    """

    is_tree = True
    num_places = 1

    def __init__(self, num_nodes: int, depth: int, half_life: float, requests: RequestRows) -> None:
        """Knows nothing yet.

        Args:
            num_nodes: tokens of a whole tree.
            depth: its most accepted tokens.
            half_life: output tokens of a request after which what was seen of it counts half.
            requests: whose rows they are.
        """
        self._num_nodes = num_nodes
        self._half_life = half_life
        # Trees asked for, trees drafted, accepted tokens: of all requests, with a guess to begin with, and of each.
        self._all = _STRENGTH * np.array([1.0, 1.0, depth * _FIRST_GUESS])
        self._of = requests.column(3)

    def learn(self, rows: Ints, asked: Ints, drafted: Ints, accepted: Ints, num_tokens: Ints) -> None:
        """Takes a step in."""
        count_trees(self._of.values, self._all, self._half_life, rows, asked, drafted, accepted, num_tokens)

    def promise(self, rows: Ints, there: Floats, gains: Floats, delivered: Floats) -> None:
        """There is one place, the tree."""
        promise_trees(self._of.values, self._all, _STRENGTH, self._num_nodes, rows, there, gains, delivered)

    @property
    def acceptance(self) -> Floats:
        """[1]: accepted tokens per tree, the running average over requests."""
        acceptance: Floats = self._all[ACCEPTED : ACCEPTED + 1] / self._all[DRAFTED]
        return acceptance
