"""Options that the commands which train have in common, and how such a command ends."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_spec_tools.cli.options import parse_count


class WeightType(StrEnum):
    """Data type of the saved weights."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


@dataclass(frozen=True)
class TrainingRun:
    """What every training reads, how much, and where its result goes, as a group of options."""

    model: Annotated[
        str, typer.Option(metavar="M", show_default=False, help="The target: a folder or a name on the hub.")
    ]
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE|DIR|stdlib",
            show_default=False,
            help='Training text; repeatable: text files, folders of them, .jsonl with "text", "prompt" and '
            '"completion", or "messages". stdlib is the corpus of the bundled models.',
        ),
    ]
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; created if missing."
        ),
    ]
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per step.")] = 2048
    max_length: Annotated[int, typer.Option(min=3, help="Maximum tokens per training sequence.")] = 512
    self_distill: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=parse_count,
            show_default=False,
            help="Tokens to generate with the model, as continuations of the data, and to train on, such as 2M. "
            "Raises acceptance on the model's own outputs. [default: none]",
        ),
    ] = None
    self_distill_temperature: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0, max=10.0, help="Temperature of those continuations; repeatable, equally many each. [default: 0, 1]"
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an interrupted run in DIR, and replace a result in it.")
    ] = False

    @property
    def values(self) -> dict[str, Any]:
        """The arguments of `tools.training.options.RunOptions`."""
        return {
            "model": self.model,
            "data": tuple(self.data),
            "batch_tokens": self.batch_tokens,
            "max_length": self.max_length,
            "self_distill": self.self_distill or 0,
            "temperatures": tuple(dict.fromkeys(self.self_distill_temperature or (0.0, 1.0))),
            "seed": self.seed,
        }


def run_training(train: Callable[[], object], out: Path) -> None:
    """Runs a training to its end or to an interrupt, and says where the result is, or how to resume."""
    try:
        train()
    except KeyboardInterrupt:
        typer.echo("interrupted; repeat the same command to resume", err=True)
        sys.exit(130)
    typer.echo(f"written to {out}")
