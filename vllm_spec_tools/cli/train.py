"""`vllm-spec train-medusa` and `train-eagle3`: train heads for a model."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import ReportFiles, grouped, parse_count


class WeightType(StrEnum):
    """Data type of the saved weights."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Labels(StrEnum):
    """What a head is trained to predict."""

    SOFT = "soft"
    HARD = "hard"


Dtype = Annotated[WeightType, typer.Option(help="Data type of the saved weights.")]


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
    steps: Annotated[int, typer.Option(min=0, help="Optimiser steps.")] = 2000
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            max=1.0,
            show_default=False,
            help="Peak learning rate. [default: by the model's hidden size: 0.064, of EAGLE-3 0.032, over its root]",
        ),
    ] = None
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

    def options(self, kind: Callable[..., Any], **own: Any) -> Any:
        """The options of a training of that kind."""
        return kind(
            self.model,
            tuple(self.data),
            steps=self.steps,
            learning_rate=self.learning_rate,
            batch_tokens=self.batch_tokens,
            max_length=self.max_length,
            self_distill=self.self_distill or 0,
            temperatures=tuple(dict.fromkeys(self.self_distill_temperature or (0.0, 1.0))),
            seed=self.seed,
            **own,
        )

    def end(self, train: Callable[..., object], options: Any, files: ReportFiles) -> None:
        """Trains to the end or to an interrupt, and says where the result is, or how to resume."""
        from vllm_spec_tools.cli.errors import new_console

        try:
            train(options, self.out, new_console(), restart=self.restart, files=files)
        except KeyboardInterrupt:
            typer.echo("interrupted; repeat the same command to resume", err=True)
            sys.exit(130)
        typer.echo(f"written to {self.out}")


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
    dtype: Dtype = WeightType.FLOAT16,
    files: ReportFiles,
) -> None:
    """Train Medusa heads for a model. The model's weights do not change.

    Writes the heads, their config with held-out accuracies and provenance, and a picture (training.png, or --png) to
    DIR. To resume an interrupted run, repeat the same command.
    """
    if start is None and run.steps == 0:
        raise UserError("--steps: got 0; allowed: from 1, or 0 with --from, to measure existing heads")

    from vllm_spec_tools.training.options import Options
    from vllm_spec_tools.training.train import train_heads

    own = {"heads": heads, "layers": layers, "start": start, "labels": labels.value, "dtype": dtype.value}
    run.end(train_heads, run.options(Options, **own), files)


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
    dtype: Dtype = WeightType.BFLOAT16,
    files: ReportFiles,
) -> None:
    """Train an EAGLE-3 head for a model. The model's weights do not change.

    Writes the head in the speculators layout, with held-out acceptance by position, provenance and a picture
    (training.png, or --png), to DIR. To resume an interrupted run, repeat the same command.
    """
    if run.steps == 0:
        raise UserError("--steps: got 0; allowed: from 1")

    from vllm_spec_tools.training.eagle3.train import train_head
    from vllm_spec_tools.training.options import Eagle3Options

    own = {"draft_tokens": draft_tokens, "draft_vocab": draft_vocab, "aux_layers": aux_layers, "dtype": dtype.value}
    run.end(train_head, run.options(Eagle3Options, **own), files)
