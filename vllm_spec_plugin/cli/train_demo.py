"""`vllm-spec train-demo`: makes the bundled models again."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.errors import fail


def train_demo(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", file_okay=False, show_default=False, help="Folder to write to; made if it is not there."
        ),
    ],
    target_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training steps of the target. Default: 2500.")
    ] = None,
    draft_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training steps of the draft. Default: 3200.")
    ] = None,
) -> None:
    """Train the demonstration models from nothing. Takes about an hour on 2 cores.

    Makes a small target model that writes Python, a smaller draft model distilled from it and
    their tokenizer, all from the source files of the Python running this: no downloads. DIR gets
    the folders target and draft (Hugging Face layout) and training.json with the figures reached.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {out}: cannot be made: {error.strerror}", 1)
    from vllm_spec_plugin.tools.demo import train as training

    target = training.TARGET_STEPS if target_steps is None else target_steps
    draft = training.DRAFT_STEPS if draft_steps is None else draft_steps
    try:
        training.train(out, target, draft)
    except OSError as error:
        fail(f"--out {out}: cannot be written: {error.strerror or error}", 1)
