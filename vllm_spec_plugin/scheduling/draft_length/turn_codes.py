"""Turns as numbers, for compiled code, and back."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Ints
from vllm_spec_plugin.turns import Turns

# A turn in a number: tokens below this, and proposers. The first turn is in the lowest digits.
_TOKENS = 1 << 16
_TURN = _TOKENS << 4


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
        self[turns] = sum((lane * _TOKENS + tokens) * _TURN**place for place, (lane, tokens) in enumerate(turns))
        return self[turns]


# There are few different ones, and looking one up takes less than working it out.
TURNS_OF, CODE_OF = _TurnsOf(), _CodeOf()


@compiled
def encode(lengths: Ints, proposers: Ints, unit: Ints) -> Ints:
    """[n]: each request's turns as a number, which is faster to make a tuple of than arrays are.

    Args:
        lengths: [n, L], places of each turn; 0 is no turn.
        proposers: [n, L], whose they are.
        unit: [n, L], tokens per place.
    """
    codes = np.zeros(len(lengths), np.int64)
    for request in range(len(lengths)):
        digit = 1
        for turn in range(lengths.shape[1]):
            if not lengths[request, turn]:
                break
            lane = proposers[request, turn]
            codes[request] += digit * (lane * _TOKENS + lengths[request, turn] * unit[request, lane])
            digit *= _TURN
    return codes


@compiled
def fates(codes: Ints, sources: Ints, drafted: Ints, accepted: Ints, num_lanes: int) -> Ints:
    """What became of each proposer's turns: those before the source's were asked for, and had no guess.

    Args:
        codes: [n], turns, as of `encode`.
        sources: [n], who gave a draft; below 0 if nobody did: all were asked.
        drafted: [n], tokens of it that were verified; what is beyond the source's turn does not count.
        accepted: [n], how many of them were kept.
        num_lanes: L.

    Returns:
        [L, 3, n] tokens that were asked for, tokens that there were, tokens that were kept.
    """
    became = np.zeros((num_lanes, 3, len(codes)), np.int64)
    for note in range(len(codes)):
        code = codes[note]
        while code:
            lane, length = code % _TURN // _TOKENS, code % _TOKENS
            became[lane, 0, note] = length
            if lane == sources[note]:
                became[lane, 1, note] = min(drafted[note], length)
                became[lane, 2, note] = min(accepted[note], became[lane, 1, note])
                break
            code //= _TURN
    return became
