"""Collects outcomes of drafts by request, for one update of the models per step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Ints, compiled
from vllm_spec_plugin.turns import Turns

# A turn as a number: draft tokens below `_TOKENS`, the proposer above. The first turn is in the lowest digits.
_TOKENS = 1 << 16
_TURN = _TOKENS << 4
_NO_SOURCE = -1
# Rows of `Outcomes.of_proposers`.
ASKED, DRAFTED, ACCEPTED = range(3)


# Few different turns occur, and a look-up is faster than creating tuples from arrays.
_MAX_KNOWN = 4096


class _TurnsOf(dict[int, Turns]):
    """Decodes turns from numbers, and caches up to `_MAX_KNOWN` of them."""

    def __missing__(self, code: int) -> Turns:
        rest, turns = code, []
        while rest:
            turns.append((rest % _TURN // _TOKENS, rest % _TOKENS))
            rest //= _TURN
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[code] = tuple(turns)
        return self[code]


class _CodeOf(dict[Turns, int]):
    """Encodes turns as numbers, and caches up to `_MAX_KNOWN` of them."""

    def __missing__(self, turns: Turns) -> int:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[turns] = sum((proposer * _TOKENS + tokens) * _TURN**i for i, (proposer, tokens) in enumerate(turns))
        return self[turns]


_TURNS_OF, _CODE_OF = _TurnsOf(), _CodeOf()


def turns_of(lengths: Ints, proposers: Ints) -> list[Turns]:
    """Returns each request's turns as tuples.

    Args:
        lengths: [n, L], draft tokens of each turn; 0 is no turn.
        proposers: [n, L], proposer of each turn.
    """
    return list(map(_TURNS_OF.__getitem__, _codes(lengths, proposers).tolist()))


@compiled
def _codes(lengths: Ints, proposers: Ints) -> Ints:
    """Returns [n], each request's turns as a number."""
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
        request_ids: [n], ids of the requests; one may occur more than once.
        num_tokens: [n], number of output tokens.
        of_proposers: [L, 3, n], per proposer the planned (0 without a turn), verified and accepted draft tokens.
        nodes: [n], of trees, bit i is whether node i was accepted.
    """

    request_ids: Sequence[str]
    num_tokens: Ints
    of_proposers: Ints
    nodes: Ints


class OutcomeNotes:
    """Collects outcomes until they are taken."""

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
        """Adds a step of a request; see `DraftLengthControl.verified`."""
        num_tokens = accepted + 1
        if num_output_tokens:
            # Steps without drafts are not recorded one by one.
            num_tokens = num_output_tokens - self._num_output.get(request_id, num_output_tokens - num_tokens)
            self._num_output[request_id] = num_output_tokens
        # A tree without branches is verified as a chain, whose accepted nodes are the first ones.
        bits = (1 << accepted) - 1 if nodes is None else sum([1 << node for node in nodes])
        # The 64th bit of an int64 is its sign.
        bits -= bits >> 63 << 64
        source = _NO_SOURCE if source is None else source
        self._notes.append((request_id, turns, source, drafted, accepted, num_tokens, bits))

    def forget(self, request_id: str) -> None:
        """Drops the state of a request."""
        self._num_output.pop(request_id, None)

    def take(self) -> Outcomes | None:
        """Returns all outcomes since the last call; None without any."""
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
    """Returns `Outcomes.of_proposers`; proposers tried before the source had no draft.

    Args:
        codes: [n], turns as numbers.
        sources: [n], index of the proposer that drafted; below 0 if none did.
        drafted: [n], verified draft tokens; those beyond the source's turn do not count.
        accepted: [n], accepted draft tokens.
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
