"""Reports the results of training, for people and for config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.report import Chart, Line, Measurements, Report, Table
from vllm_spec_tools.training.objective import Ranks

SHOWN_RANKS = 5
_TURNS = 12  # kinds of text take turns, and their losses differ: a mean is over whole turns of 1 to 4 kinds
_SMOOTHING = 0.03  # share of all steps whose mean is one point of the training curve


@dataclass
class History:
    """Records of a training: plain lists, so that they can be saved.

    Attributes:
        loss: per step, each head's mean cross entropy in nats.
        steps: after how many steps the heads were measured on held-out text.
        held_out_loss: then, of each head.
        held_out_accuracy: then, of each head: how often its best token was right.
    """

    loss: list[list[float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    held_out_loss: list[list[float]] = field(default_factory=list)
    held_out_accuracy: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class HeadMeasurement:
    """Held-out figures of one kind of text.

    Attributes:
        top: of each head, how often the right token was among its best 1 to SHOWN_RANKS.
        loss: of each head, cross entropy in nats per token.
        tokens_per_step: see `tokens_per_step`; None where the target did not write the text.
    """

    name: str
    positions: int
    next_token: list[float]
    top: list[list[float]]
    loss: list[float]
    tokens_per_step: float | None


def measurement(name: str, ranks: Ranks, *, is_own: bool) -> HeadMeasurement:
    """The figures of one kind's ranks."""
    together = ranks.together
    top = torch.tensor(accuracy(together)).cumsum(1)[:, :SHOWN_RANKS].tolist()
    per_step = tokens_per_step(ranks.rows) if is_own else None
    return HeadMeasurement(name, together.shape[1], top[0], top[1:], list(ranks.loss), per_step)


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


def held_out(measurements: Sequence[HeadMeasurement]) -> dict[str, dict[str, Any]]:
    """Returns the figures of each kind of text, rounded."""
    return {
        each.name: {
            "positions": each.positions,
            "next_token_top": [round(share, 4) for share in each.next_token],
            "top": [[round(share, 4) for share in head] for head in each.top],
            "loss": [round(loss, 4) for loss in each.loss],
        }
        | ({} if each.tokens_per_step is None else {"tokens_per_step": round(each.tokens_per_step, 3)})
        for each in measurements
    }


def report_of(
    command: str,
    title: str,
    measurements: Sequence[HeadMeasurement],
    history: History | None,
    origin: Mapping[str, Any],
    unit: str,
    conclusions: Sequence[str] = (),
) -> Report:
    """Makes the report.

    Args:
        history: how training went, with at least one measurement; None if the heads were only measured.
        unit: what a draft token is of, such as a head.
    """
    names = [f"{unit} {number}, token t+{number + 1}" for number in range(1, 1 + len(measurements[0].loss))]
    values, tables = Measurements(), []
    for each in measurements:
        rows = [["target, token t+1", *(f"{share:.1%}" for share in each.next_token), ""]]
        for name, top, loss in zip(names, each.top, each.loss, strict=True):
            values.add(name, each.name, 0, 0, {f"top_{n}": share for n, share in enumerate(top, 1)} | {"loss": loss})
            rows.append([name, *(f"{share:.1%}" for share in top), f"{loss:.3f}"])
        header = ["", *(f"top-{rank + 1}" for rank in range(SHOWN_RANKS)), "loss"]
        tables.append(Table(f"Held out, {each.name}: {each.positions:,} positions", header, rows))
    gains = [
        f"{each.name}: {each.tokens_per_step:.2f} tokens per target pass with a chain of all {unit}s."
        for each in measurements
        if each.tokens_per_step is not None
    ]
    return Report(
        command,
        title,
        origin,
        [*conclusions, *gains],
        tables,
        _charts(history, names) if history is not None else [],
        [f"Top-N: how often the right token is among the N that a {unit} finds most likely. Loss: nats per token."],
        measurements=values,
        data={} if history is None else {"history": vars(history)},
    )


def _charts(history: History, names: Sequence[str]) -> list[Chart]:
    width = _TURNS * max(1, round(len(history.loss) * _SMOOTHING / _TURNS))
    pieces = {start: history.loss[start : start + width] for start in range(0, len(history.loss), width)}
    middles = [start + len(piece) / 2 for start, piece in pieces.items()]
    smoothed = [[sum(losses) / len(piece) for losses in zip(*piece, strict=True)] for piece in pieces.values()]
    percent = [[100 * share for share in of_heads] for of_heads in history.held_out_accuracy]
    charts = (
        ("most likely token is right, held-out text", "share of positions, %", history.steps, percent),
        ("cross entropy, held-out text", "nats per token", history.steps, history.held_out_loss),
        ("cross entropy, training text, smoothed", "nats per token", middles, smoothed),
    )
    found = []
    for title, label, steps, values in charts:
        of_heads = zip(names, zip(*values, strict=True), strict=True)
        lines = [Line(name, dict(zip(steps, of_head, strict=True))) for name, of_head in of_heads]
        found.append(Chart(title, "optimiser steps", label, lines, has_levels=False))
    return found
