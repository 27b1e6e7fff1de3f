"""What a proposer's drafts promise, request by request, from how they fared so far."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceEstimate
from vllm_spec_plugin.scheduling.draft_length.optimal import Floats

# Of trees: how many of them the average of all requests is worth against a request's own; what is thought of a level
# before any was verified; and how long that average remembers, a half-life of 4,096 trees.
_STRENGTH = 4.0
_FIRST_GUESS = 0.4
_FADING = 0.5 ** (1 / 4096)


class Expectation(Protocol):
    """Learns from verified drafts what the next ones will bring."""

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Takes a verified step in.

        Args:
            request_id: whose.
            asked: draft tokens that were asked for, at least 1.
            drafted: how many there were and were verified.
            accepted: how many of them were kept.
        """
        ...

    def advance(self, request_id: str, num_tokens: int) -> None:
        """The request's text grew by so many tokens, with drafts or without: what was seen counts for less."""
        ...

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        ...

    def promises(self, request_ids: Sequence[str]) -> tuple[Floats, Floats]:
        """What the next drafts are expected to bring.

        Returns:
            [n, K] accepted tokens that asking for the k-th unit (a token, or a whole tree) adds, falling along k, and
            [n, K] how many draft tokens are to be expected from it: the probability that there is a k-th one.
        """
        ...

    @property
    def acceptance(self) -> Floats:
        """[K]: the running average over requests: of a place that it is right if those before it were."""
        ...


class ChainExpectation:
    """Of chains: the k-th token adds the probability that it is there and that it and all before it are right."""

    def __init__(self, num_tokens: int, half_life: float) -> None:
        """Knows nothing yet.

        Args:
            num_tokens: K, most draft tokens.
            half_life: output tokens of a request after which what was seen of it counts half.
        """
        self._right = AcceptanceEstimate(num_tokens, half_life=half_life)
        # Proposers give all that is asked for until they are seen not to.
        self._there = AcceptanceEstimate(num_tokens, half_life=half_life, initial=0.95)

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Takes a verified step in."""
        self._there.verified(request_id, asked, drafted)
        if drafted:
            self._right.verified(request_id, drafted, accepted)

    def advance(self, request_id: str, num_tokens: int) -> None:
        """What was seen counts for less."""
        self._there.advance(request_id, num_tokens)
        self._right.advance(request_id, num_tokens)

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._there.forget(request_id)
        self._right.forget(request_id)

    def promises(self, request_ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Gains and probabilities of delivery."""
        delivered: Floats = np.multiply.accumulate(self._there.rates(request_ids), axis=1)
        right: Floats = np.multiply.accumulate(self._right.rates(request_ids), axis=1)
        return right * delivered, delivered

    @property
    def acceptance(self) -> Floats:
        """[K]."""
        return self._right.prior


class TreeExpectation:
    """Of trees, which are drafted whole or not at all: how many of their tokens are accepted, on the average.

    A request's mean is held to the mean of all by `_STRENGTH` trees.
    """

    def __init__(self, num_nodes: int, depth: int, half_life: float) -> None:
        """Knows nothing yet.

        Args:
            num_nodes: tokens of a whole tree.
            depth: its most accepted tokens.
            half_life: output tokens of a request after which what was seen of it counts half.
        """
        self._num_nodes = num_nodes
        self._half_life = half_life
        # Trees and accepted tokens: of all requests, with a guess to begin with, and of each.
        self._all = (_STRENGTH, _STRENGTH * depth * _FIRST_GUESS)
        self._of: dict[str, tuple[float, float]] = {}

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Takes a verified step in."""
        if not drafted:
            return
        count, kept = self._of.get(request_id, (0.0, 0.0))
        self._of[request_id] = (count + 1, kept + accepted)
        self._all = (self._all[0] * _FADING + 1, self._all[1] * _FADING + accepted)

    def advance(self, request_id: str, num_tokens: int) -> None:
        """What was seen counts for less."""
        if request_id in self._of:
            count, kept = self._of[request_id]
            fade = 0.5 ** (num_tokens / self._half_life)
            self._of[request_id] = (count * fade, kept * fade)

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._of.pop(request_id, None)

    def promises(self, request_ids: Sequence[str]) -> tuple[Floats, Floats]:
        """[n, 1] accepted tokens that a tree adds, and [n, 1] its tokens: there is one place, the tree."""
        mean = float(self.acceptance[0])
        seen = np.array([self._of.get(request_id, (0.0, 0.0)) for request_id in request_ids])
        gains = (seen[:, 1:] + _STRENGTH * mean) / (seen[:, :1] + _STRENGTH)
        return gains, np.full_like(gains, self._num_nodes)

    @property
    def acceptance(self) -> Floats:
        """[1]: accepted tokens per tree, the running average over requests."""
        return np.array([self._all[1] / self._all[0]])
