"""`python -m benchmarks widen`: makes a costlier model with the same outputs."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_tools.engines.engine_options import parse_count


def widen(
    out: Annotated[Path, typer.Argument(metavar="OUT", show_default=False, help="Folder to write, new or empty.")],
    parameters: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=parse_count,
            show_default=False,
            help="Number of parameters to reach, such as 200M or 1.5B.",
        ),
    ],
) -> None:
    """Make the bundled target costlier without changing its outputs.

    Adds neurons with zero weights to its MLPs: outputs stay the same, cost grows. Use it to measure real drafts against
    a target of realistic size.
    """
    from vllm_spec_plugin.models import model_path
    from vllm_spec_tools.demo import widen as widening

    typer.echo(f"{out}: {widening.widen(model_path('target'), out, parameters):,} parameters")
