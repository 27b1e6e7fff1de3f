"""Options that the commands which train have in common, and how such a command ends."""

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.widen import parse_count


class WeightType(StrEnum):
    """Data type of the saved weights."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


TargetModel = Annotated[
    str, typer.Option(metavar="M", show_default=False, help="The target: a folder or a name on the hub.")
]
TrainingData = Annotated[
    list[str],
    typer.Option(
        metavar="FILE|DIR|stdlib",
        show_default=False,
        help='Training text; repeatable: text files, folders of them, .jsonl with "text", "prompt" and '
        '"completion", or "messages". stdlib is the corpus of the bundled models.',
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option(metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; created if missing."),
]
BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens per step.")]
MaxLength = Annotated[int, typer.Option(min=3, help="Maximum tokens per training sequence.")]
SelfDistill = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=parse_count,
        show_default=False,
        help="Tokens to generate with the model, as continuations of the data, and to train on, such as 2M. "
        "Raises acceptance on the model's own outputs. [default: none]",
    ),
]
SelfDistillTemperature = Annotated[
    list[float] | None,
    typer.Option(
        min=0.0, max=10.0, help="Temperature of those continuations; repeatable, equally many each. [default: 0, 1]"
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]


def run_training(train: Callable[[], object], out: Path) -> None:
    """Runs a training to its end or to an interrupt, and says where the result is, or how to resume."""
    try:
        train()
    except KeyboardInterrupt:
        typer.echo("interrupted; repeat the same command to resume", err=True)
        sys.exit(130)
    typer.echo(f"written to {out}")
