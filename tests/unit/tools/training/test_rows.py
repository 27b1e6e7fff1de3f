"""Rows and batches."""

from itertools import islice

import torch

from vllm_spec_plugin.tools.training.rows import Row, batches_forever, batches_once, cut, side_by_side


def rows(lengths: list[int], temperature: float | None = None, start: int = 0) -> list[Row]:
    return [Row(torch.full((length,), start + n), 1, temperature) for n, length in enumerate(lengths)]


def test_texts_are_cut_and_a_rest_that_is_too_short_left_out() -> None:
    assert [row.tokens.tolist() for row in cut(range(9), 4, 1)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert [row.tokens.tolist() for row in cut(range(9), 4, 2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_rows_side_by_side_keep_their_lengths() -> None:
    batch = side_by_side([Row(torch.tensor([1, 2, 3]), 2, 1.0), Row(torch.tensor([4]), 1, 1.0)])
    assert batch.tokens.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert (batch.lengths, batch.firsts, batch.temperature) == ([3, 1], [2, 1], 1.0)


def test_once_means_every_row_once_and_one_temperature_per_batch() -> None:
    given = rows([5, 3, 8, 2], None) + rows([4, 4], 0.0, start=10)
    batches = list(batches_once(given, 10))
    assert sorted(batch.tokens[n, 0].item() for batch in batches for n in range(len(batch.lengths))) == [
        *[0, 1, 2, 3],
        *[10, 11],
    ]
    assert [batch.temperature for batch in batches] == [None, None, None, 0.0]
    assert all(batch.tokens.numel() <= 10 for batch in batches)


def test_kinds_take_turns_and_every_row_comes_before_any_comes_again() -> None:
    kinds = [rows([4] * 6), rows([3] * 6, 0.0, start=10)]
    batches = list(islice(batches_forever(kinds, 12, 0), 8))
    assert [batch.temperature for batch in batches] == [None, 0.0] * 4
    seen = [token for batch in batches[::2] for token in batch.tokens[:, 0].tolist()]
    assert sorted(seen[:6]) == sorted(seen[6:]) == [0, 1, 2, 3, 4, 5]
    assert all(batch.tokens.numel() <= 12 for batch in batches)
