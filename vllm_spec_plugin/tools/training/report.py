"""What training came to, for people and for config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, SAMPLED
from vllm_spec_plugin.tools.training.measurement import Ranks, accuracy, likeliest_paths, tokens_per_step

SHOWN_RANKS = 5


@dataclass(frozen=True)
class Measurement:
    """Held-out figures of one kind of text.

    Attributes:
        name: of the kind.
        positions: how many were measured.
        next_token: how often the target's own best token was the next one.
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


def measurement(name: str, ranks: Ranks, *, is_own: bool) -> Measurement:
    """The figures of one kind's ranks."""
    together = ranks.together
    top = torch.tensor(accuracy(together)).cumsum(1)[:, :SHOWN_RANKS].tolist()
    return Measurement(
        name, together.shape[1], top[0], top[1:], list(ranks.loss), tokens_per_step(ranks.rows) if is_own else None
    )


@dataclass(frozen=True)
class Served:
    """Ranks on the kinds of text most like what will be served, by name; all positions count the same.

    Attributes:
        all: of all requests.
        greedy: of those at temperature 0.
        sampled: of the others.
    """

    all: Mapping[str, Ranks]
    greedy: Mapping[str, Ranks]
    sampled: Mapping[str, Ranks]


def for_config(
    measurements: Sequence[Measurement], served: Served, drawn: Sequence[tuple[list[int], float]]
) -> dict[str, Any]:
    """The part of config.json that says how good the heads are.

    Args:
        measurements: of all kinds.
        served: ranks.
        drawn: paths of drawn drafts and the probability that they are accepted.
    """
    heads = _of_heads(served.all)
    paths = {GREEDY: likeliest_paths(_of_heads(served.greedy)), SAMPLED: likeliest_paths(_of_heads(served.sampled))}
    paths[DRAWN] = list(drawn)
    return {
        "measured_on": f"held out: {' and '.join(served.all)}, {heads.shape[1]} positions",
        "accuracy": [[round(share, 5) for share in head] for head in accuracy(heads)],
        "held_out": held_out(measurements),
        "paths": {use: [[path, round(probability, 6)] for path, probability in found] for use, found in paths.items()},
    }


def held_out(measurements: Sequence[Measurement]) -> dict[str, dict[str, Any]]:
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


def print_measurements(measurements: Sequence[Measurement], console: Console, unit: str = "head") -> None:
    """A table per kind of text; `unit` is what drafts one token."""
    for each in measurements:
        title = f"Held out, {each.name}: {each.positions:,} positions"
        if each.tokens_per_step is not None:
            title += f", {each.tokens_per_step:.2f} tokens per target pass with a chain of all {unit}s"
        console.print(title, style="bold", highlight=False, soft_wrap=True)
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        for rank in range(SHOWN_RANKS):
            table.add_column(f"top-{rank + 1}", justify="right")
        table.add_column("loss", justify="right")
        table.add_row("target, token t+1", *(f"{share:.1%}" for share in each.next_token), "", style="dim")
        for number, (top, loss) in enumerate(zip(each.top, each.loss, strict=True), 1):
            table.add_row(f"{unit} {number}, token t+{number + 1}", *(f"{share:.1%}" for share in top), f"{loss:.3f}")
        console.print(table)
