"""Outcomes of drafts, noted request by request and learned from together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Ints, compiled
from vllm_spec_plugin.turns import Turns

# A turn as a number: draft tokens below this, and above them the proposer. The first turn is in the lowest digits.
_TOKENS = 1 << 16
_TURN = _TOKENS << 4
_NO_SOURCE = -1
# Rows of `Outcomes.of_proposers`.
ASKED, DRAFTED, ACCEPTED = range(3)


class _TurnsOf(dict[int, Turns]):
    """The turns that a number stands for."""

    def __missing__(self, code: int) -> Turns:
        rest, turns = code, []
        while rest:
            turns.append((rest % _TURN // _TOKENS, rest % _TOKENS))
            rest //= _TURN
        self[code] = tuple(turns)
        return self[code]


class _CodeOf(dict[Turns, int]):
    """The number that stands for turns."""

    def __missing__(self, turns: Turns) -> int:
        self[turns] = sum((proposer * _TOKENS + tokens) * _TURN**i for i, (proposer, tokens) in enumerate(turns))
        return self[turns]


# There are few different ones, and a look-up takes less time than making tuples from arrays.
_TURNS_OF, _CODE_OF = _TurnsOf(), _CodeOf()


def turns_of(lengths: Ints, proposers: Ints) -> list[Turns]:
    """Returns each request's turns as tuples.

    Args:
        lengths: [n, L], draft tokens of each turn; 0 is no turn.
        proposers: [n, L], the proposer of each turn.
    """
    return list(map(_TURNS_OF.__getitem__, _codes(lengths, proposers).tolist()))


@compiled
def _codes(lengths: Ints, proposers: Ints) -> Ints:
    """[n]: each request's turns as a number."""
    codes = np.zeros(len(lengths), np.int64)
    for request in range(len(lengths)):
        digit = 1
        for turn in range(lengths.shape[1]):
            if lengths[request, turn]:
                codes[request] += digit * (proposers[request, turn] * _TOKENS + lengths[request, turn])
                digit *= _TURN
    return codes


class Outcomes(NamedTuple):
    """Outcomes of n steps of requests, in their order.

    Attributes:
        request_ids: [n], of each step; one request may have several.
        num_tokens: [n], output tokens of the step.
        of_proposers: [L, 3, n], of each proposer the draft tokens that it was asked for, 0 if it was not; those of its
            draft tokens that were verified; and those that were accepted.
        nodes: [n], of trees, bit i is whether node i was accepted.
    """

    request_ids: Sequence[str]
    num_tokens: Ints
    of_proposers: Ints
    nodes: Ints


class OutcomeNotes:
    """Notes outcomes at next to no cost until they are taken."""

    def __init__(self, num_proposers: int) -> None:
        """Starts without notes."""
        self._num_proposers = num_proposers
        self._notes: list[tuple[str, Turns, int, int, int, int, int]] = []
        self._num_output: dict[str, int] = {}

    def verified(
        self,
        request_id: str,
        turns: Turns,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Notes a step of a request; see `DraftLengthControl.verified`."""
        num_tokens = accepted + 1
        if num_output_tokens:
            # Steps without drafts are not told of one by one.
            num_tokens = num_output_tokens - self._num_output.get(request_id, num_output_tokens - num_tokens)
            self._num_output[request_id] = num_output_tokens
        # A tree without branches is verified as a chain, whose accepted nodes are the first ones.
        bits = (1 << accepted) - 1 if nodes is None else sum([1 << node for node in nodes])
        # The 64th bit of an int64 is its sign.
        bits -= bits >> 63 << 64
        source = _NO_SOURCE if source is None else source
        self._notes.append((request_id, turns, source, drafted, accepted, num_tokens, bits))

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request."""
        self._num_output.pop(request_id, None)

    def take(self) -> Outcomes | None:
        """Returns all notes since the last call; None if there are none."""
        if not self._notes:
            return None
        request_ids, turns, sources, drafted, accepted, num_tokens, nodes = zip(*self._notes, strict=True)
        self._notes.clear()
        codes = np.fromiter(map(_CODE_OF.__getitem__, turns), np.int64, len(turns))
        notes = np.array([sources, drafted, accepted, num_tokens, nodes], np.int64)
        of_proposers = _of_proposers(codes, notes[0], notes[1], notes[2], self._num_proposers)
        return Outcomes(request_ids, notes[3], of_proposers, notes[4])


@compiled
def _of_proposers(codes: Ints, sources: Ints, drafted: Ints, accepted: Ints, num_proposers: int) -> Ints:
    """[L, 3, n], as of `Outcomes`. Proposers that were asked before the source had no draft.

    Args:
        codes: [n], turns as numbers.
        sources: [n], the proposer that drafted; below 0 if none did.
        drafted: [n], draft tokens that were verified; those beyond the source's turn do not count.
        accepted: [n], how many of them were accepted.
        num_proposers: L.
    """
    outcomes = np.zeros((num_proposers, 3, len(codes)), np.int64)
    for i in range(len(codes)):
        code = codes[i]
        while code:
            proposer, length = code % _TURN // _TOKENS, code % _TOKENS
            outcomes[proposer, ASKED, i] = length
            if proposer == sources[i]:
                outcomes[proposer, DRAFTED, i] = min(drafted[i], length)
                outcomes[proposer, ACCEPTED, i] = min(accepted[i], outcomes[proposer, DRAFTED, i])
                break
            code //= _TURN
    return outcomes
