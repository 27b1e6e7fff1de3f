"""Tests the objective of an EAGLE-3 head: the right token at each step of its chains."""

import pytest
import torch

from tests.unit.tools.training.tiny import alphabet, alphabet_backbone
from vllm_spec_plugin.proposers.eagle3.layout import read_layout
from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.eagle3 import objective
from vllm_spec_tools.training.eagle3.objective import (
    REJECTION_WEIGHT,
    STEP_DECAY,
    ChainLesson,
    acceptance_by_position,
    rank_chains,
    teacher,
)
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.eagle3.train import frequent_tokens, new_config, new_head
from vllm_spec_tools.training.loop import Training
from vllm_spec_tools.training.measurement import Ranks
from vllm_spec_tools.training.options import Eagle3Options
from vllm_spec_tools.training.rows import TokenRow, side_by_side

TEXTS = [TokenRow(alphabet(20, start)) for start in range(26)]
OPTIONS = Eagle3Options("m", ["d"], draft_tokens=3, steps=60, batch_tokens=200, learning_rate=0.02)


def head_for(backbone: Backbone, ids: torch.Tensor) -> Eagle3Head:
    options = Eagle3Options("m", ["d"], draft_vocab=len(ids))
    return new_head(backbone, read_layout(new_config(backbone, options), "config.json"), ids, seed=0)


@pytest.mark.parametrize("draft_vocab", [30, 28])
def test_step_s_learns_the_token_s_after_the_next(draft_vocab: int) -> None:
    backbone = alphabet_backbone(3)
    ids = frequent_tokens(TEXTS, draft_vocab, 30)
    head = head_for(backbone, ids)
    training = Training(head, teacher(backbone, head, ids, 3), [TEXTS], OPTIONS)
    while training.step < OPTIONS.steps:
        training.advance()
    ranks, overlaps = rank_chains(backbone, head, ids, TEXTS, 400, 3)
    assert ranks.together.shape == (4, 26 * 16)
    assert (ranks.together == 0).all()
    assert acceptance_by_position(ranks) == [1.0] * 3
    assert min(overlaps) > 0.9


def test_gradients_are_those_of_the_weighted_mean_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "LARGEST_GRADIENT", 1e9)
    monkeypatch.setitem(objective._NUMBERS, "cpu", 0)
    backbone, ids = alphabet_backbone(3), torch.arange(2, 28)
    head = head_for(backbone, ids)
    rows = [TokenRow(alphabet(20), first=3), TokenRow(alphabet(9, 4)), TokenRow(alphabet(4))]
    lesson = ChainLesson(backbone, side_by_side(rows), head, ids, 3)
    assert len(list(lesson.chunks())) == 2
    losses = lesson.learn(rejection=0.25)
    found = [parameter.grad for parameter in head.parameters()]
    head.zero_grad()
    total = torch.zeros(())
    for step, output in enumerate(lesson.outputs()):
        entropy, rejected = lesson.losses(head.lm_head(output), slice(None), step)
        torch.testing.assert_close(entropy / len(lesson.positions), losses[step])
        loss = (0.75 * entropy + 0.25 * REJECTION_WEIGHT * rejected) / len(lesson.positions)
        total = total + loss * STEP_DECAY**step
    total.backward()
    for gradient, parameter in zip(found, head.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_the_rejection_rate_is_one_less_the_overlap() -> None:
    backbone, ids = alphabet_backbone(3), torch.arange(30)
    lesson = ChainLesson(backbone, side_by_side([TokenRow(alphabet(9))]), head_for(backbone, ids), ids, 2)
    guesses = torch.randn(6, 30, generator=torch.Generator().manual_seed(0))
    _, rejected = lesson.losses(guesses, slice(None), 1)
    overlap = torch.minimum(lesson.probs(slice(None), 1), guesses.softmax(-1)).sum()
    torch.testing.assert_close(rejected, 6 - overlap)


def test_tokens_outside_the_heads_vocabulary_are_missed() -> None:
    backbone, ids = alphabet_backbone(3), torch.arange(2, 15)
    ranks, _ = rank_chains(backbone, head_for(backbone, ids), ids, [TokenRow(alphabet(26))], 100, 2)
    outside = torch.cat([torch.arange(2, 25)[None], torch.arange(3, 26)[None]]) >= 13
    assert (ranks.together[1:, :][outside[:, :23]] == NUM_RANKS).all()


def test_frequent_tokens_are_the_most_frequent_in_ascending_order() -> None:
    rows = [TokenRow(torch.tensor([5, 5, 9, 9, 9, 3])), TokenRow(torch.tensor([1]))]
    assert frequent_tokens(rows, 3, 10).tolist() == [1, 5, 9]
    assert frequent_tokens(rows, 5, 10).tolist() == [0, 1, 3, 5, 9]


def test_acceptance_by_position_counts_where_all_before_were_right() -> None:
    rows = (torch.tensor([[9, 0, 0, 0], [0, 0, 0, 1], [0, 2, 0, 0], [3, 0, 0, 0]]),)
    assert acceptance_by_position(Ranks(rows, (0.0,) * 3)) == [0.75, pytest.approx(2 / 3), 0.5]
    assert acceptance_by_position(Ranks((torch.ones(3, 2, dtype=torch.int64),), (0.0,) * 2)) == [0.0, 0.0]
