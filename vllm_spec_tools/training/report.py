"""Figures of trained heads on held-out text: for config.json, and as tables in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.report import Report, Table
from vllm_spec_tools.training.objective import Ranks

SHOWN_RANKS = 5


def figures_of(ranks: Ranks, *, is_own: bool) -> dict[str, Any]:
    """Returns the figures of one kind of text, rounded.

    `top` is, of each head, how often the right token was among its best 1 to SHOWN_RANKS; `next_token_top` the same of
    the target itself; `loss` the cross entropy of each head in nats per token.

    Args:
        is_own: whether the target wrote the text; then `tokens_per_step` is among the figures.
    """
    together = ranks.together
    top = torch.tensor(accuracy(together)).cumsum(1)[:, :SHOWN_RANKS].tolist()
    of_target, *of_heads = [[round(share, 4) for share in line] for line in top]
    loss = [round(loss, 4) for loss in ranks.loss]
    figures = {"positions": together.shape[1], "next_token_top": of_target, "top": of_heads, "loss": loss}
    return figures | ({"tokens_per_step": round(tokens_per_step(ranks.rows), 3)} if is_own else {})


def accuracy(ranks: torch.Tensor) -> list[list[float]]:
    """Probability of each rank below NUM_RANKS, for each line of `ranks`, [lines, positions]."""
    positions = max(1, ranks.shape[1])
    return [(torch.bincount(line, minlength=NUM_RANKS)[:NUM_RANKS] / positions).tolist() for line in ranks]


def tokens_per_step(rows: Sequence[torch.Tensor]) -> float:
    """Tokens that a target gains per pass when each head drafts its best token, on the text that it wrote.

    A step at position t gains the token t+1 and as many of those after as the first heads get right; the next one is
    at the last token gained but one. That is what serving does: at temperature 0 exactly, at others because a certain
    draft is accepted if and only if the token drawn is equal.

    Args:
        rows: see `Ranks.rows`.
    """
    steps = tokens = 0
    for row in rows:
        right = (row[1:] == 0).long().cumprod(0).sum(0).tolist()
        position = 0
        while position < len(right):
            steps += 1
            tokens += 1 + right[position]
            position += 1 + right[position]
    return tokens / max(1, steps)


def report_of(held_out: Mapping[str, Mapping[str, Any]], unit: str, origin: Mapping[str, Any]) -> Report:
    """Makes the report that is printed.

    Args:
        held_out: figures by kind of text.
        unit: what a draft token is of, such as a head.
        origin: provenance.
    """
    tables, gains = [], []
    for kind, figures in held_out.items():
        rows = [["target, token t+1", *_percent(figures["next_token_top"]), ""]]
        for number, (top, loss) in enumerate(zip(figures["top"], figures["loss"], strict=True), 1):
            rows.append([f"{unit} {number}, token t+{number + 1}", *_percent(top), f"{loss:.3f}"])
        header = ["", *(f"top-{rank + 1}" for rank in range(SHOWN_RANKS)), "loss"]
        tables.append(Table(f"Held out, {kind}: {figures['positions']:,} positions", header, rows))
        if shares := figures.get("acceptance_by_position"):
            gains.append(f"Accepted by position, {kind}: {', '.join(_percent(shares))}.")
        if gain := figures.get("tokens_per_step"):
            gains.append(f"{kind}: {gain:.2f} tokens per target pass with a chain of all {unit}s.")
    note = f"Top-N: how often the right token is among the {unit}'s N most likely. Loss: nats per token."
    return Report("train", "Figures on held-out text", origin, gains, tables, notes=[note])


def _percent(shares: Sequence[float]) -> list[str]:
    return [f"{share:.1%}" for share in shares]
