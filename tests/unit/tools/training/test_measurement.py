"""Figures by hand, how often drawn drafts would be accepted, and what is printed."""

import io
import itertools

import pytest
import torch
from rich.console import Console

from tests.unit.tools.training.tiny import alphabet, random_backbone
from vllm_spec_plugin.proposers.draft_tokens import draw_siblings
from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.report import write
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.training.measurement import (
    accepted_shares,
    accuracy,
    drawn_paths,
    likeliest_paths,
    rank_rows,
    tokens_per_step,
)
from vllm_spec_tools.training.report import HeadMeasurement, report_of
from vllm_spec_tools.training.rows import TokenRow
from vllm_spec_tools.training.train import first_heads


def test_accuracies_are_shares_of_all_positions() -> None:
    found = accuracy(torch.tensor([[0, 0, 1, NUM_RANKS], [9, 9, 9, 0]]))
    assert found == [[0.5, 0.25, *[0.0] * 8], [0.25, *[0.0] * 8, 0.75]]


def test_paths_are_counted_with_their_beginnings() -> None:
    ranks = torch.tensor(
        [
            [0, 0, 0, 1, 2, NUM_RANKS, 0, 1],
            [0, 0, 3, 0, NUM_RANKS, 0, 0, 0],
        ]
    )
    assert likeliest_paths(ranks) == [
        ([0], 0.5),
        ([0, 0], 0.375),
        ([1], 0.25),
        ([1, 0], 0.25),
        ([2], 0.125),
        ([0, 3], 0.125),
    ]


def test_a_chain_gains_the_next_token_and_the_first_right_ones() -> None:
    # Positions 0 (2 right), 3 (none), 4 (1, after it the text ends).
    row = torch.tensor([[0, 0, 0, 0, 0], [0, 5, 5, 1, 0], [0, 0, 0, 0, 2]])
    assert tokens_per_step([row]) == pytest.approx((3 + 1 + 2) / 3)
    assert tokens_per_step([row, row]) == pytest.approx(2)


def test_ranks_come_row_by_row_whatever_the_batches() -> None:
    backbone = random_backbone()
    heads = first_heads(backbone, 2, 1)
    rows = [
        TokenRow(alphabet(20)),
        TokenRow(alphabet(12, 5), first=3),
        TokenRow(alphabet(12, 9), 2, 1.0),
        TokenRow(alphabet(3), 1, 1.0),
    ]
    batched = rank_rows(backbone, heads, rows, 50, soft=True)
    alone = [rank_rows(backbone, heads, [row], 50, soft=True) for row in rows]
    assert [tuple(row.shape) for row in batched.rows] == [(3, 17), (3, 7), (3, 8)]
    assert all(torch.equal(row, one.rows[0]) for row, one in zip(batched.rows, alone, strict=False))
    weights = [sum(row.shape[1] for row in one.rows) for one in alone]
    mean = sum(one.loss[0] * weight for one, weight in zip(alone, weights, strict=True)) / sum(weights)
    assert batched.loss[0] == pytest.approx(mean, rel=1e-5)


def test_the_ranks_are_those_of_the_tokens_after_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = random_backbone()
    heads = first_heads(backbone, 2, 1)
    tokens = alphabet(10)
    states, logits = (each[0] for each in backbone.read(tokens[None]))
    (found,) = rank_rows(backbone, heads, [TokenRow(tokens)], 50, soft=True).rows
    guesses = heads(states)
    for position in range(7):
        for line, scores in enumerate((logits, guesses[0], guesses[1])):
            row = scores[position]
            assert found[line, position] == min(NUM_RANKS, (row > row[tokens[position + 1 + line]]).sum())


def test_the_table_has_a_line_per_head_below_the_targets_own() -> None:
    file = io.StringIO()
    measured = HeadMeasurement("own text", 1234, [1.0] * 5, [[0.5, 0.6, 0.7, 0.8, 0.9], [0.25] * 5], [1.5, 2.5], 2.25)
    origin = provenance([], 0, (), {"target": "m"})
    report = report_of("train-medusa", "2 Medusa heads for m", [measured], None, origin)
    write(report, terminal=Console(file=file, width=120))
    text = file.getvalue()
    assert "own text: 2.25 tokens per target pass with a chain of all heads." in text
    assert "Held out, own text: 1,234 positions" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["top-1", "top-2", "top-3", "top-4", "top-5", "loss"] in lines
    assert ["target,", "token", "t+1", *["100.0%"] * 5] in lines
    assert ["head", "1,", "token", "t+2", "50.0%", "60.0%", "70.0%", "80.0%", "90.0%", "1.500"] in lines
    values = {(row.arm, row.metric): row.value for row in report.measurements.rows()}
    assert (values["head 1, token t+2", "top_2"], values["head 2, token t+3", "loss"]) == (0.6, 2.5)


P = torch.tensor([0.5, 0.3, 0.15, 0.05])
Q = torch.tensor([0.1, 0.4, 0.2, 0.3])


def test_the_first_sibling_is_accepted_as_often_as_p_and_q_overlap():
    """Sum of min(p, q), the mean over draws on a fine grid; error of the grid below 1e-3."""
    uniforms = (torch.arange(4000, dtype=torch.float64)[:, None] + 0.5) / 4000
    tokens, probs = draw_siblings(Q.log().expand(4000, -1), uniforms)
    shares = accepted_shares(P.expand(4000, -1), tokens, probs)
    assert float(shares.mean()) == pytest.approx(float(torch.minimum(P, Q).sum()), abs=1e-3)


def test_shares_are_those_of_trying_siblings_in_turn_by_hand():
    tokens = torch.tensor([[3, 1]])
    after = Q.clone()
    after[3] = 0
    probs = torch.stack([Q, after / after.sum()])[None]
    first = 0.05 / 0.3
    left = (P - Q).clamp_min(0)
    left = left / left.sum()
    second = min(1.0, float(left[1] / probs[0, 1, 1]))
    shares = accepted_shares(P[None], tokens, probs)
    assert shares.tolist()[0] == pytest.approx([first, (1 - first) * second], abs=1e-6)


def test_paths_are_means_of_products_likeliest_first_with_their_beginnings():
    shares = torch.rand(2, 30, 3, generator=torch.Generator().manual_seed(1)) / 3
    found = drawn_paths(shares, 100)
    expected: dict[tuple[int, ...], float] = {(a,): float(shares[0, :, a].mean()) for a in range(3)}
    for a, b in itertools.product(range(3), repeat=2):
        expected[a, b] = float((shares[0, :, a] * shares[1, :, b]).mean())
    assert {tuple(path): share for path, share in found} == pytest.approx(expected)
    assert [share for _, share in found] == pytest.approx(sorted(expected.values(), reverse=True))
    few = [tuple(path) for path, _ in drawn_paths(shares, 5)]
    assert few == [tuple(path) for path, _ in found[:5]]
    assert all(len(path) == 1 or path[:-1] in few for path in few)
    assert drawn_paths(torch.zeros(2, 0, 3), 5) == []
