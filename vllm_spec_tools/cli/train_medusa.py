"""`vllm-spec train-medusa`: trains Medusa heads for a model."""

from enum import StrEnum
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import ReportFiles, grouped
from vllm_spec_tools.cli.training_options import TrainingRun, WeightType, run_training


class Labels(StrEnum):
    """What a head is trained to predict."""

    SOFT = "soft"
    HARD = "hard"


@grouped
def train_medusa(
    *,
    run: TrainingRun,
    heads: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, metavar="N", show_default=False, help="Number of heads. [default: 4, or that of --from]"
        ),
    ] = None,
    layers: Annotated[int, typer.Option(min=1, max=8, help="Residual blocks per head.")] = 1,
    steps: Annotated[int, typer.Option(min=0, help="Optimiser steps.")] = 2000,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            max=1.0,
            show_default=False,
            help="Peak learning rate. [default: 0.064 / sqrt(hidden size of the model)]",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HEADS",
            show_default=False,
            help="Heads to start from, in this project's layout or Medusa's original one. With --steps 0 they are only "
            "measured, and written in this project's layout.",
        ),
    ] = None,
    labels: Annotated[
        Labels, typer.Option(help="Train on the model's distribution of each token (soft), or on the token (hard).")
    ] = Labels.SOFT,
    dtype: Annotated[WeightType, typer.Option(help="Data type of the saved weights.")] = WeightType.FLOAT16,
    files: ReportFiles,
) -> None:
    """Train Medusa heads for a model. The model's weights do not change.

    Writes the heads, their config with held-out accuracies and provenance, and a picture (training.png, or --png) to
    DIR. To resume an interrupted run, repeat the same command.
    """
    if start is None and steps == 0:
        raise UserError("--steps: got 0; allowed: from 1, or 0 with --from, to measure existing heads")

    from vllm_spec_tools.cli.console import new_console
    from vllm_spec_tools.training.options import Options
    from vllm_spec_tools.training.train import train_heads

    options = Options(
        heads=heads,
        layers=layers,
        steps=steps,
        learning_rate=learning_rate,
        start=start,
        labels=labels.value,
        dtype=dtype.value,
        **run.values,
    )
    run_training(lambda: train_heads(options, run.out, new_console(), restart=run.restart, files=files), run.out)
