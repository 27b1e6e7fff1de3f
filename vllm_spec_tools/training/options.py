"""Options of training runs, which are those of their commands."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Literal

import typer

from vllm_spec_tools.engines.engine_options import parse_count

Dtype = Annotated[Literal["float16", "bfloat16", "float32"], typer.Option(help="Data type of the saved weights.")]


@dataclass(frozen=True)
class RunOptions:
    """Inputs and sizes of every training."""

    model: Annotated[
        str, typer.Option(metavar="M", show_default=False, help="The target: a folder, a name on the hub, or smollm2.")
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
    _: KW_ONLY
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
        int,
        typer.Option(
            metavar="N",
            parser=parse_count,
            show_default=False,
            help="Tokens to generate with the model, as continuations of the data, and to train on, such as 2M. "
            "Raises acceptance on the model's own outputs. [default: none]",
        ),
    ] = 0
    temperatures: Annotated[
        list[float],
        typer.Option(
            "--self-distill-temperature",
            min=0.0,
            max=10.0,
            help="Temperature of those continuations; repeatable, equally many each.",
        ),
    ] = field(default_factory=lambda: [0.0, 1.0])
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0
    dtype: Dtype = "float16"

    @property
    def tokens_ahead(self) -> int:
        """The number of tokens that are drafted after the target's own next one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Options(RunOptions):
    """Options that decide which Medusa heads come out."""

    heads: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, metavar="N", show_default=False, help="Number of heads. [default: 4, or that of --from]"
        ),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HEADS",
            show_default=False,
            help="Heads to start from, in this project's layout or Medusa's original one. With --steps 0 they are only "
            "measured, and written in this project's layout.",
        ),
    ] = None

    @property
    def tokens_ahead(self) -> int:
        """See `RunOptions`: one per head, once their number is settled."""
        assert self.heads is not None
        return self.heads


@dataclass(frozen=True)
class Eagle3Options(RunOptions):
    """Options that decide which EAGLE-3 head comes out."""

    draft_tokens: Annotated[
        int, typer.Option(min=1, max=16, help="Length of the chains that the head learns to draft.")
    ] = 5
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Size of the head's vocabulary: the most frequent tokens of the training text. [default: the model's, "
            "at most 32000]",
        ),
    ] = None
    dtype: Dtype = "bfloat16"

    @property
    def tokens_ahead(self) -> int:
        """See `RunOptions`."""
        return self.draft_tokens
