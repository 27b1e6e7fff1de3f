"""`vllm-spec train-medusa`: heads for a model of one's own."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.errors import fail
from vllm_spec_plugin.cli.widen import parse_count


class Labels(StrEnum):
    """What a head is to say."""

    SOFT = "soft"
    HARD = "hard"


class WeightType(StrEnum):
    """Of the saved weights."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def train_medusa(
    model: Annotated[
        str, typer.Option(metavar="M", show_default=False, help="The target: a folder or a name on the hub.")
    ],
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE|DIR|stdlib",
            show_default=False,
            help='Texts to learn from, as often as you like: text files, folders of them, .jsonl with "text", "prompt" '
            'and "completion", or "messages". stdlib is the bundled models\' own corpus.',
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; made if it is not there."
        ),
    ],
    heads: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, metavar="N", show_default=False, help="Heads to train. [default: 4, or those of --from]"
        ),
    ] = None,
    layers: Annotated[int, typer.Option(min=1, max=8, help="Residual blocks of each head.")] = 1,
    steps: Annotated[int, typer.Option(min=0, help="Optimiser steps.")] = 2000,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per step.")] = 2048,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9, max=1.0, show_default=False, help="The highest. [default: 0.064 / sqrt(hidden size of the model)]"
        ),
    ] = None,
    max_length: Annotated[int, typer.Option(min=3, help="Tokens of a text that the model reads at once.")] = 512,
    self_distill: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=parse_count,
            show_default=False,
            help="Tokens of the model's own continuations of the data to make and learn from, such as 2M. They make "
            "heads better at what they are for. [default: none]",
        ),
    ] = None,
    self_distill_temperature: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0, max=10.0, help="At which they are made, as often as you like, equally many each. [default: 0, 1]"
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HEADS",
            show_default=False,
            help="Heads to start from, in this layout or the original Medusa one. With --steps 0 they are only "
            "measured, and written in this one.",
        ),
    ] = None,
    labels: Annotated[
        Labels, typer.Option(help="Learn the model's distribution of each token, or the token.")
    ] = Labels.SOFT,
    dtype: Annotated[WeightType, typer.Option(help="Of the saved weights.")] = WeightType.FLOAT16,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget an interrupted run in DIR, and replace heads that are there.")
    ] = False,
) -> None:
    """Train Medusa heads for a model, whose own weights stay as they are.

    DIR gets the heads, their config with held-out accuracies and where they come from, and training.png. An
    interrupted run goes on where it was when the same command is given again.
    """
    if start is None and steps == 0:
        fail("--steps: got 0; allowed: from 1, or 0 with --from, to measure heads that there are", 2)

    from rich.console import Console

    from vllm_spec_plugin.tools.training.options import Options
    from vllm_spec_plugin.tools.training.train import train_heads

    options = Options(
        model=model,
        data=tuple(data),
        heads=heads,
        layers=layers,
        steps=steps,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        max_length=max_length,
        self_distill=self_distill or 0,
        temperatures=tuple(dict.fromkeys(self_distill_temperature or (0.0, 1.0))),
        start=start,
        labels=labels.value,
        dtype=dtype.value,
        seed=seed,
    )
    try:
        train_heads(options, out, Console(), restart=restart)
    except OSError as error:
        fail(f"--out {out}: cannot be written: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from here", err=True)
        sys.exit(130)
    typer.echo(f"written to {out}")
