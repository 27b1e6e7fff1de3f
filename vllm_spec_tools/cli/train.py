"""`vllm-spec train-medusa` and `train-eagle3`: train heads for a model."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import grouped
from vllm_spec_tools.training.options import Eagle3Options, Options

Out = Annotated[
    Path,
    typer.Option(metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; created if missing."),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Discard an interrupted run in DIR, and replace a result in it.")
]


@grouped
def train_medusa(*, options: Options, out: Out, restart: Restart = False) -> None:
    """Train Medusa heads for a model. The model's weights do not change.

    Writes the heads and their config, with held-out accuracies and provenance, to DIR. To resume an interrupted run,
    repeat the same command.
    """
    if options.start is None and options.steps == 0:
        raise UserError("--steps: got 0; allowed: from 1, or 0 with --from, to measure existing heads")

    from vllm_spec_tools.training.medusa import train_heads

    _run(train_heads, options, out, restart)


@grouped
def train_eagle3(*, options: Eagle3Options, out: Out, restart: Restart = False) -> None:
    """Train an EAGLE-3 head for a model. The model's weights do not change.

    Writes the head in the speculators layout, with held-out acceptance by position and provenance, to DIR. To resume
    an interrupted run, repeat the same command.
    """
    if options.steps == 0:
        raise UserError("--steps: got 0; allowed: from 1")

    from vllm_spec_tools.training.eagle3 import train_head

    _run(train_head, options, out, restart)


def _run(train: Callable[..., object], options: Any, out: Path, restart: bool) -> None:
    """Trains to the end or to an interrupt, and says where the result is, or how to resume."""
    from vllm_spec_tools.cli.errors import new_console

    try:
        train(options, out, new_console(), restart=restart)
    except KeyboardInterrupt:
        typer.echo("interrupted; repeat the same command to resume", err=True)
        sys.exit(130)
    typer.echo(f"written to {out}")
