"""`vllm-spec train-eagle3`: trains an EAGLE-3 head for a model."""

from typing import Annotated

import typer

from vllm_spec_tools.cli.options import ReportFiles, grouped
from vllm_spec_tools.cli.training_options import TrainingRun, WeightType, run_training


@grouped
def train_eagle3(
    *,
    run: TrainingRun,
    draft_tokens: Annotated[
        int, typer.Option(min=1, max=16, help="Length of the chains that the head learns to draft.")
    ] = 5,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Size of the head's vocabulary: the most frequent tokens of the training text. [default: the model's, "
            "at most 32000]",
        ),
    ] = None,
    aux_layers: Annotated[
        tuple[int, int, int] | None,
        typer.Option(
            metavar="I J K",
            show_default=False,
            help="Layers of the model after which the head takes hidden states; 0 is the embedding. [default: 2, the "
            "middle and the third from the end, as in vLLM; the last three of models with few layers]",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 2000,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            max=1.0,
            show_default=False,
            help="Peak learning rate. [default: 0.032 / sqrt(hidden size of the model)]",
        ),
    ] = None,
    dtype: Annotated[WeightType, typer.Option(help="Data type of the saved weights.")] = WeightType.BFLOAT16,
    files: ReportFiles,
) -> None:
    """Train an EAGLE-3 head for a model. The model's weights do not change.

    Writes the head in the speculators layout, with held-out acceptance by position, provenance and a picture
    (training.png, or --png), to DIR. To resume an interrupted run, repeat the same command.
    """
    from vllm_spec_tools.cli.console import new_console
    from vllm_spec_tools.training.eagle3.options import Eagle3Options
    from vllm_spec_tools.training.eagle3.train import train_head

    options = Eagle3Options(
        draft_tokens=draft_tokens,
        draft_vocab=draft_vocab,
        aux_layers=aux_layers,
        steps=steps,
        learning_rate=learning_rate,
        dtype=dtype.value,
        **run.values,
    )
    run_training(lambda: train_head(options, run.out, new_console(), restart=run.restart, files=files), run.out)
