"""Trains the bundled models: `python -m models --out DIR`."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_tools.cli.errors import Commands


def main(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; created if missing."
        ),
    ],
    target_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training steps of the target. Default: 2500.")
    ] = None,
    draft_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training steps of the draft. Default: 3200.")
    ] = None,
) -> None:
    """Train the bundled models from scratch. Takes about an hour on 2 cores.

    Trains a small target model that writes Python, a smaller draft model distilled from it, and their tokenizer,
    on the source files of the Python that runs this: no downloads. Writes the folders target and draft (Hugging
    Face layout) and training.json with its measurements to DIR.
    """
    out.mkdir(parents=True, exist_ok=True)
    from models import train as training

    target = training.TARGET_STEPS if target_steps is None else target_steps
    draft = training.DRAFT_STEPS if draft_steps is None else draft_steps
    training.train(out, target, draft)


app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app()
