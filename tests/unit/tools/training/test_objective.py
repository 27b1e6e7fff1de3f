"""Tests the objective of heads: the right token, at the right distance."""

import math

import pytest
import torch

from tests.unit.tools.training.tiny import alphabet, alphabet_backbone, random_backbone
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_tools.training.loop import Training
from vllm_spec_tools.training.measurement import rank_rows
from vllm_spec_tools.training.objective import Lesson, positions_of, teacher
from vllm_spec_tools.training.options import Options
from vllm_spec_tools.training.rows import TokenRow, side_by_side
from vllm_spec_tools.training.train import first_heads

TEXTS = [TokenRow(alphabet(20, start)) for start in range(26)]


def summed(lesson: Lesson, heads: MedusaHeads) -> torch.Tensor:
    """Sum of each head's cross entropies, [num_heads], in nats."""
    with torch.no_grad():
        return torch.stack([lesson.errors(heads(lesson.states[one]), one)[0] for one in lesson.chunks()]).sum(0)


@pytest.mark.parametrize("labels", ["soft", "hard"])
def test_head_k_learns_the_token_k_after_the_next(labels: str) -> None:
    backbone = alphabet_backbone()
    heads = first_heads(backbone, 3, 1)
    options = Options("m", ["d"], heads=3, steps=60, batch_tokens=200, learning_rate=0.05, labels=labels)  # type: ignore[arg-type]
    training = Training(heads, teacher(backbone, heads, soft=labels == "soft"), [TEXTS], options)
    while training.step < options.steps:
        training.advance()
    best = heads(backbone.read(alphabet(26)[None])[0][0]).argmax(-1)
    for head in range(3):
        assert best[head].tolist() == alphabet(26, 2 + head).tolist()
    ranks = rank_rows(backbone, heads, TEXTS, 400, soft=labels == "soft")
    assert (ranks.together == 0).all()


def test_untrained_heads_say_what_the_target_says_next() -> None:
    backbone = random_backbone()
    states, logits = backbone.read(alphabet(10)[None])
    for guesses in first_heads(backbone, 2, 1)(states[0]):
        torch.testing.assert_close(guesses, logits[0])


def test_positions_have_all_that_is_guessed_within_the_targets_own_text() -> None:
    batch = side_by_side([TokenRow(alphabet(9), first=3), TokenRow(alphabet(4)), TokenRow(alphabet(7), first=6)])
    # Two heads at position t: tokens t+1 to t+3, of 9 tokens from the 3rd on, and of 4 from the 1st.
    assert positions_of(batch, 2).tolist() == [2, 3, 4, 5, 9]


@pytest.mark.parametrize("soft", [True, False])
def test_losses_are_cross_entropies_of_the_labels_and_gradients_those_of_autograd(soft: bool) -> None:
    backbone = random_backbone()
    heads = first_heads(backbone, 2, 1)
    rows = [TokenRow(alphabet(12, 2), first=4), TokenRow(alphabet(9, 20))]
    lesson = Lesson(backbone, side_by_side(rows), 2, soft=soft)
    means = lesson.learn(heads)
    found = [weight.grad.clone() for weight in heads.parameters() if weight.grad is not None]
    heads.zero_grad()
    guesses = heads(lesson.states[lesson.positions])
    total = torch.zeros(())
    for head in range(2):
        labels = lesson.logits[lesson.positions + head + 1].softmax(-1)
        if not soft:
            labels = lesson.tokens[lesson.positions + head + 2]
        loss = torch.nn.functional.cross_entropy(guesses[head], labels)
        assert means[head].item() == pytest.approx(loss.item(), rel=1e-5)
        total = total + loss
    total.backward()
    for mine, weight in zip(found, heads.parameters(), strict=True):
        torch.testing.assert_close(mine, weight.grad)


def test_labels_have_the_temperature_of_the_text() -> None:
    backbone = random_backbone()
    tokens = alphabet(8)
    logits = backbone.read(tokens[None])[1][0]
    for temperature, expected in ((None, logits), (1.0, logits), (0.5, 2 * logits)):
        lesson = Lesson(backbone, side_by_side([TokenRow(tokens, 1, temperature)]), 2, soft=True)
        torch.testing.assert_close(lesson.labels, expected.softmax(-1))


def test_labels_of_greedy_text_are_its_tokens() -> None:
    backbone = random_backbone()
    heads = first_heads(backbone, 2, 1)
    greedy, hard = (
        summed(Lesson(backbone, side_by_side([TokenRow(alphabet(8), 1, temperature)]), 2, soft=soft), heads)
        for temperature, soft in ((0.0, True), (None, False))
    )
    assert torch.equal(greedy, hard)


def test_padding_and_other_rows_change_nothing() -> None:
    backbone = random_backbone()
    heads = first_heads(backbone, 2, 1)
    rows = [TokenRow(alphabet(12, 2)), TokenRow(alphabet(5, 20)), TokenRow(alphabet(3))]
    together = summed(Lesson(backbone, side_by_side(rows), 2, soft=True), heads)
    alone = sum(summed(Lesson(backbone, side_by_side([row]), 2, soft=True), heads) for row in rows)
    torch.testing.assert_close(together, alone)
    assert math.isfinite(together.sum().item())
