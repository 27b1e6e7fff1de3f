"""Reports the results of training, for people and for config.json."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, SAMPLED
from vllm_spec_tools.report import Chart, Line, Measurements, Report, Table
from vllm_spec_tools.training.loop import History
from vllm_spec_tools.training.measurement import Ranks, accuracy, likeliest_paths, tokens_per_step

SHOWN_RANKS = 5
_TURNS = 12  # kinds of text take turns, and their losses differ: a mean is over whole turns of 1 to 4 kinds
_SMOOTHING = 0.03  # share of all steps whose mean is one point of the training curve


@dataclass(frozen=True)
class HeadMeasurement:
    """Held-out figures of one kind of text.

    Attributes:
        top: of each head, how often the right token was among its best 1 to SHOWN_RANKS.
        loss: of each head, cross entropy in nats per token.
        tokens_per_step: see `measurement.tokens_per_step`; None where the target did not write the text.
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
    return HeadMeasurement(
        name, together.shape[1], top[0], top[1:], list(ranks.loss), tokens_per_step(ranks.rows) if is_own else None
    )


def for_config(
    measurements: Sequence[HeadMeasurement],
    served: Mapping[str, Ranks],
    greedy: Mapping[str, Ranks],
    sampled: Mapping[str, Ranks],
    drawn: Sequence[tuple[list[int], float]],
) -> dict[str, Any]:
    """The part of config.json that says how good the heads are.

    Args:
        served: ranks on the kinds of text most like what will be served, by name; all positions count the same.
        drawn: paths of drawn drafts and the probability that they are accepted.
    """
    heads = _of_heads(served)
    paths = {GREEDY: likeliest_paths(_of_heads(greedy)), SAMPLED: likeliest_paths(_of_heads(sampled))}
    paths[DRAWN] = list(drawn)
    return {
        "measured_on": f"held out: {' and '.join(served)}, {heads.shape[1]} positions",
        "accuracy": [[round(share, 5) for share in head] for head in accuracy(heads)],
        "held_out": held_out(measurements),
        "paths": {use: [[path, round(probability, 6)] for path, probability in found] for use, found in paths.items()},
    }


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


def _of_heads(ranks: Mapping[str, Ranks]) -> torch.Tensor:
    return torch.cat([found.together[1:] for found in ranks.values()], 1)


def report_of(
    command: str,
    title: str,
    measurements: Sequence[HeadMeasurement],
    history: History | None,
    origin: Mapping[str, Any],
    *,
    unit: str = "head",
    conclusions: Sequence[str] = (),
) -> Report:
    """Makes the report.

    Args:
        history: how training went, with at least one measurement; None if the heads were only measured.
    """
    values = Measurements()
    for each in measurements:
        for head, (top, loss) in enumerate(zip(each.top, each.loss, strict=True), 1):
            figures = {f"top_{rank}": share for rank, share in enumerate(top, 1)}
            values.add(_name(unit, head), each.name, 0, 0, figures | {"loss": loss})
    return Report(
        command,
        title,
        origin,
        [
            *conclusions,
            *(
                f"{each.name}: {each.tokens_per_step:.2f} tokens per target pass with a chain of all {unit}s."
                for each in measurements
                if each.tokens_per_step is not None
            ),
        ],
        [_table(each, unit) for each in measurements],
        list(_charts(history, unit)) if history is not None else [],
        [f"Top-N: how often the right token is among the N that a {unit} finds most likely. Loss: nats per token."],
        measurements=values,
        data={} if history is None else {"history": vars(history)},
    )


def _name(unit: str, number: int) -> str:
    return f"{unit} {number}, token t+{number + 1}"


def _table(measured: HeadMeasurement, unit: str) -> Table:
    """One kind of text, a row per head below the target's own."""
    rows = [["target, token t+1", *(f"{share:.1%}" for share in measured.next_token), ""]]
    for number, (top, loss) in enumerate(zip(measured.top, measured.loss, strict=True), 1):
        rows.append([_name(unit, number), *(f"{share:.1%}" for share in top), f"{loss:.3f}"])
    title = f"Held out, {measured.name}: {measured.positions:,} positions"
    return Table(title, ["", *(f"top-{rank + 1}" for rank in range(SHOWN_RANKS)), "loss"], rows)


def _charts(history: History, unit: str) -> Iterator[Chart]:
    heads, steps = range(len(history.held_out_loss[0])), history.steps

    def held_out(values: Sequence[Sequence[float]], factor: float) -> list[Line]:
        found = [[factor * of_heads[head] for of_heads in values] for head in heads]
        return [Line(_name(unit, head + 1), dict(zip(steps, found[head], strict=True))) for head in heads]

    width = _TURNS * max(1, round(len(history.loss) * _SMOOTHING / _TURNS))
    smoothed = [Line(_name(unit, head + 1), _means([losses[head] for losses in history.loss], width)) for head in heads]
    for title, label, lines in (
        (
            "most likely token is right, held-out text",
            "share of positions, %",
            held_out(history.held_out_accuracy, 100.0),
        ),
        ("cross entropy, held-out text", "nats per token", held_out(history.held_out_loss, 1.0)),
        ("cross entropy, training text, smoothed", "nats per token", smoothed),
    ):
        yield Chart(title, "optimiser steps", label, lines, has_levels=False)


def _means(values: Sequence[float], width: int) -> dict[float, float]:
    """Means of neighbours by the step in their middle."""
    pieces = {start: values[start : start + width] for start in range(0, len(values), width)}
    return {start + len(piece) / 2: sum(piece) / len(piece) for start, piece in pieces.items()}
