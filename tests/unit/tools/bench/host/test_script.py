"""The scripted text: what it repeats, and which draft tokens it accepts."""

import pytest
import torch

from vllm_spec_plugin.tools.bench.host.script import next_tokens, prompt

VOCAB = 2048


def text(row: int, num_tokens: int, *, repeats: bool) -> list[int]:
    """A prompt of 8 tokens and what the script answers, one token per step."""
    token_ids = prompt(row, 8, VOCAB, repeats=repeats)
    while len(token_ids) < num_tokens:
        last, position = torch.tensor([token_ids[-1]]), torch.tensor([len(token_ids) - 1])
        token_ids += next_tokens(last, position, VOCAB, repeats=repeats).tolist()
    return token_ids


@pytest.mark.parametrize("row", [0, 1, 127, 300])
def test_a_text_repeats_itself_or_never_says_a_token_twice(row: int) -> None:
    assert len(set(text(row, 1000, repeats=False))) == 1000
    repeating = text(row, 100, repeats=True)
    assert repeating[16:] == repeating[:-16]
    assert len(set(repeating)) == 16
    assert max(repeating) < VOCAB


def test_requests_of_a_step_do_not_see_each_other() -> None:
    token_ids, positions = torch.tensor([5, 9, 2047]), torch.tensor([31, 40, 12])
    assert next_tokens(token_ids, positions, VOCAB, repeats=False).tolist() == [6, 10, 0]


@pytest.mark.parametrize("repeats", [False, True])
def test_three_of_four_draft_tokens_are_accepted(repeats: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(VOCAB, (4000,), generator=generator, dtype=torch.int32)
    answered = next_tokens(token_ids, torch.arange(4000), VOCAB, repeats=repeats)[:-1]
    accepted = (answered == token_ids[1:]).float().mean()
    assert 0.7 < accepted < 0.8


def test_a_rejected_draft_token_is_answered_by_another_one_even_if_it_was_the_successor() -> None:
    token_ids, positions = torch.arange(400), torch.arange(400)
    answered = next_tokens(token_ids, positions, VOCAB, repeats=False)[:-1]
    assert set((answered - token_ids[:-1]).tolist()) == {1, 2}
