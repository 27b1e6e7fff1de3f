"""Texts as rows of tokens, and rows as batches."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Row:
    """What the target reads at once.

    Attributes:
        tokens: ids, [length] int64.
        first: the first token that the target itself is taken to have written, from 1: the ones before are its
            prompt, and nothing is learned or measured there.
        temperature: at which the target wrote them; None is text of another source.
    """

    tokens: torch.Tensor
    first: int = 1
    temperature: float | None = None


def cut(tokens: Sequence[int], max_length: int, min_length: int) -> Iterator[Row]:
    """A text as rows of up to `max_length` tokens; a rest of less than `min_length` is left out."""
    for start in range(0, len(tokens), max_length):
        piece = tokens[start : start + max_length]
        if len(piece) >= min_length:
            yield Row(torch.tensor(piece, dtype=torch.int64))


@dataclass(frozen=True)
class Batch:
    """Rows side by side.

    Attributes:
        tokens: [rows, length] int64, padded on the right with zeros: no token sees what comes after it.
        lengths: of each row, without the padding.
        firsts: `Row.first` of each.
    """

    tokens: torch.Tensor
    lengths: list[int]
    firsts: list[int]
    temperature: float | None


def side_by_side(rows: Sequence[Row]) -> Batch:
    """Makes a batch of rows of one temperature."""
    tokens = torch.nn.utils.rnn.pad_sequence([row.tokens for row in rows], batch_first=True)
    return Batch(tokens, [len(row.tokens) for row in rows], [row.first for row in rows], rows[0].temperature)


def batches_once(rows: Sequence[Row], batch_tokens: int) -> Iterator[Batch]:
    """All rows, once, those of one temperature together, longest first."""
    for temperature in dict.fromkeys(row.temperature for row in rows):
        alike = [row for row in rows if row.temperature == temperature]
        alike.sort(key=lambda row: len(row.tokens), reverse=True)
        while alike:
            count = max(1, batch_tokens // len(alike[0].tokens))
            yield side_by_side(alike[:count])
            del alike[:count]


def batches_forever(kinds: Sequence[Sequence[Row]], batch_tokens: int, seed: int) -> Iterator[Batch]:
    """Batches of each kind of rows in turn, every kind shuffled again and again; the same for the same seed.

    Args:
        kinds: rows of one temperature each, none of them empty.
        batch_tokens: tokens of a batch with its padding, unless a single row has more.
        seed: of the order.
    """
    streams = [_shuffled(rows, random.Random(seed * len(kinds) + number)) for number, rows in enumerate(kinds)]
    waiting = [next(stream) for stream in streams]
    while True:
        for number, stream in enumerate(streams):
            batch, longest = [waiting[number]], len(waiting[number].tokens)
            while True:
                waiting[number] = next(stream)
                longest = max(longest, len(waiting[number].tokens))
                if (len(batch) + 1) * longest > batch_tokens:
                    break
                batch.append(waiting[number])
            yield side_by_side(batch)


_POOL = 256


def _shuffled(rows: Sequence[Row], generator: random.Random) -> Iterator[Row]:
    """Rows without end; those near each other are of like lengths, so that little of a batch is padding."""
    while True:
        order = list(rows)
        generator.shuffle(order)
        for start in range(0, len(order), _POOL):
            yield from sorted(order[start : start + _POOL], key=lambda row: len(row.tokens))
