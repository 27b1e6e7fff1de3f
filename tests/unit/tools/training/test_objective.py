"""Heads of both kinds learn the right token, at the right distance, in the distribution of the text."""

import pytest
import torch

from tests.unit.tools.training.tiny import alphabet, alphabet_backbone, random_backbone
from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training import objective as module
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.eagle3 import Eagle3Objective, acceptance_by_position, frequent_tokens, new_config
from vllm_spec_tools.training.loop import Training
from vllm_spec_tools.training.medusa import MedusaObjective
from vllm_spec_tools.training.objective import REJECTION_WEIGHT, Objective, Ranks, positions_of
from vllm_spec_tools.training.options import Eagle3Options, Options
from vllm_spec_tools.training.rows import Kind, TokenRow, side_by_side

TEXTS = [TokenRow(alphabet(20, start)) for start in range(26)]
ROWS = [TokenRow(alphabet(20, 2), first=4), TokenRow(alphabet(9, 20)), TokenRow(alphabet(4))]


def medusa(backbone: Backbone) -> Objective[torch.nn.Module]:
    sizes = {"heads": 3, "steps": 60, "batch_tokens": 200, "learning_rate": 0.05}
    objective = MedusaObjective(Options("m", ["d"], **sizes), backbone)  # type: ignore[arg-type]
    objective.start([])
    return objective  # type: ignore[return-value]


def eagle3(backbone: Backbone, draft_vocab: int = 30) -> Objective[torch.nn.Module]:
    sizes = {"draft_tokens": 3, "steps": 60, "batch_tokens": 200}
    options = Eagle3Options("m", ["d"], draft_vocab=draft_vocab, learning_rate=0.02, **sizes)  # type: ignore[arg-type]
    objective = Eagle3Objective(options, backbone, new_config(backbone, options))
    objective.start([Kind("data", tuple(TEXTS), ())])
    return objective  # type: ignore[return-value]


@pytest.mark.parametrize(("make", "sizes"), [(medusa, ()), (eagle3, (30,)), (eagle3, (28,))])
def test_draft_token_s_is_the_token_s_after_the_next(make, sizes) -> None:
    objective = make(alphabet_backbone(3), *sizes)
    training = Training(objective.heads, objective.learn, [TEXTS], objective.options)
    while training.step < objective.options.steps:
        training.advance()
    ranks = objective.rank(TEXTS)
    assert ranks.together.shape == (4, 26 * 16)
    assert (ranks.together == 0).all()
    assert acceptance_by_position(ranks) == [1.0] * 3
    assert min(ranks.overlap) > 0.9


def test_untrained_medusa_heads_say_what_the_target_says_next() -> None:
    backbone = random_backbone()
    objective = medusa(backbone)
    states, logits = backbone.read(alphabet(10)[None])
    for guesses in objective.heads(states[0]):
        torch.testing.assert_close(guesses, logits[0])
    lesson, outputs = objective.lesson(side_by_side([TokenRow(alphabet(10))]))
    for step, output in enumerate(outputs):
        torch.testing.assert_close(objective.guess(output, step), logits[0][lesson.positions])


def test_positions_have_all_that_is_drafted_within_the_targets_own_text() -> None:
    batch = side_by_side([TokenRow(alphabet(9), first=3), TokenRow(alphabet(4)), TokenRow(alphabet(7), first=6)])
    # Two drafts at position t: tokens t+1 to t+3, of 9 tokens from the 3rd on, and of 4 from the 1st.
    assert positions_of(batch, 2).tolist() == [2, 3, 4, 5, 9]


@pytest.mark.parametrize(
    ("objective", "done"),
    [
        (medusa(random_backbone()), 0.5),
        (eagle3(alphabet_backbone(3), 26), 0.4),
    ],
    ids=["medusa", "eagle3"],
)
def test_gradients_are_those_of_the_weighted_mean_loss(
    objective: Objective[torch.nn.Module], done: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By autograd over all chunks and steps at once, with torch's own cross entropy."""
    monkeypatch.setattr(objective, "largest_gradient", None)
    monkeypatch.setitem(module._NUMBERS, "cpu", 0)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    objective.heads.zero_grad()
    losses = objective.learn(side_by_side(ROWS), done)
    found = [weight.grad for weight in objective.heads.parameters()]
    objective.heads.zero_grad()
    lesson, outputs = objective.lesson(side_by_side(ROWS))
    assert len(list(lesson.chunks())) > 1
    rejection, whole = objective.rejection(done), slice(None)
    total = torch.zeros(())
    for step, output in enumerate(outputs):
        guesses, labels = objective.guess(output, step), lesson.probs(whole, step)
        entropy = torch.nn.functional.cross_entropy(guesses, labels)
        torch.testing.assert_close(entropy.detach(), losses[step])
        rejected = lesson.losses(guesses, whole, step)[1] / len(lesson.positions)
        total = total + objective.step_decay**step * (
            (1 - rejection) * entropy + rejection * REJECTION_WEIGHT * rejected
        )
    total.backward()
    for gradient, parameter in zip(found, objective.heads.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


@pytest.mark.parametrize("make", [medusa, eagle3])
def test_ranks_come_row_by_row_whatever_the_batches(make) -> None:
    """Neither padding nor other rows change ranks or losses."""
    objective = make(alphabet_backbone(3))
    rows = [*ROWS, TokenRow(alphabet(12, 9), 2, 1.0), TokenRow(alphabet(3), 1, 1.0)]
    batched, alone = objective.rank(rows), [objective.rank([row]) for row in rows]
    assert [row.shape[1] for row in batched.rows] == [13, 5, 7]
    assert all(
        torch.equal(row, one.rows[0]) for row, one in zip(batched.rows, (alone[0], alone[1], alone[3]), strict=True)
    )
    weights = [sum(row.shape[1] for row in one.rows) for one in alone]
    for name in ("loss", "overlap"):
        mean = sum(getattr(one, name)[0] * weight for one, weight in zip(alone, weights, strict=True)) / sum(weights)
        assert getattr(batched, name)[0] == pytest.approx(mean, rel=1e-5)


def test_ranks_are_those_of_the_texts_tokens() -> None:
    backbone, tokens = random_backbone(), alphabet(10)
    objective = medusa(backbone)
    states, logits = (each[0] for each in backbone.read(tokens[None]))
    (found,) = objective.rank([TokenRow(tokens)]).rows
    scores = [logits, *objective.heads(states)]
    for position in range(6):
        for line, rows in enumerate(scores):
            row = rows[position]
            assert found[line, position] == min(NUM_RANKS, (row > row[tokens[position + 1 + line]]).sum())


@pytest.mark.parametrize(("make", "of_greedy"), [(medusa, "tokens"), (eagle3, "temperature 1")])
def test_labels_have_the_temperature_of_the_text(make, of_greedy) -> None:
    backbone = random_backbone() if make is medusa else alphabet_backbone(3)
    objective, tokens = make(backbone), alphabet(8)
    logits = backbone.read(tokens[None])[1][0]
    guesses = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    entropies = {}
    for temperature, scale in ((None, 1.0), (1.0, 1.0), (0.5, 2.0), (0.0, 1.0)):
        lesson, _ = objective.lesson(side_by_side([TokenRow(tokens, 1, temperature)]))
        torch.testing.assert_close(lesson.probs(slice(None), 1), (scale * logits[2:6]).softmax(-1))
        entropies[temperature] = float(lesson.losses(guesses, slice(None), 1)[0])
    hard = -float(guesses.log_softmax(-1).gather(1, tokens[3:7][:, None]).sum())
    assert entropies[0.0] == pytest.approx(hard if of_greedy == "tokens" else entropies[1.0])


def test_the_rejection_rate_is_one_less_the_overlap() -> None:
    lesson, _ = eagle3(alphabet_backbone(3)).lesson(side_by_side([TokenRow(alphabet(9))]))
    guesses = torch.randn(5, 30, generator=torch.Generator().manual_seed(0))
    _, rejected = lesson.losses(guesses, slice(None), 1)
    overlap = torch.minimum(lesson.probs(slice(None), 1), guesses.softmax(-1)).sum()
    torch.testing.assert_close(rejected, 5 - overlap)


def test_a_head_with_few_tokens_misses_the_others() -> None:
    rows = [TokenRow(torch.tensor([5, 5, 9, 9, 9, 3])), TokenRow(torch.tensor([1]))]
    assert frequent_tokens(rows, 3, 10).tolist() == [1, 5, 9]
    assert frequent_tokens(rows, 5, 10).tolist() == [0, 1, 3, 5, 9]
    objective = eagle3(alphabet_backbone(3), 13)
    right, _ = objective.lesson(side_by_side([TokenRow(alphabet(26))]))
    outside = torch.stack([right.right(slice(None), step) < 0 for step in range(3)])
    assert 0 < outside.sum() < outside.numel()
    assert (objective.rank([TokenRow(alphabet(26))]).together[1:][outside] == NUM_RANKS).all()


def test_acceptance_by_position_counts_where_all_before_were_right() -> None:
    rows = (torch.tensor([[9, 0, 0, 0], [0, 0, 0, 1], [0, 2, 0, 0], [3, 0, 0, 0]]),)
    assert acceptance_by_position(Ranks(rows, (0.0,) * 3)) == [0.75, pytest.approx(2 / 3), 0.5]
    assert acceptance_by_position(Ranks((torch.ones(3, 2, dtype=torch.int64),), (0.0,) * 2)) == [0.0, 0.0]
