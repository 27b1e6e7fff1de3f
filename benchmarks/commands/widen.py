"""`python -m benchmarks widen`: makes a costlier model with the same outputs."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import parse_count


def widen(
    out: Annotated[Path, typer.Argument(metavar="OUT", show_default=False, help="Folder to write, new or empty.")],
    parameters: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=parse_count,
            show_default=False,
            help="Number of parameters to reach, such as 200M or 1.5B.",
        ),
    ] = None,
    intermediate_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="Alternatively, neurons per MLP of the result."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the model to widen. [default: the bundled target]"),
    ] = None,
) -> None:
    """Make a model costlier without changing its outputs.

    Adds neurons with zero weights to the MLPs of a Llama, Qwen2, Qwen3 or Mistral checkpoint: outputs stay the
    same, cost grows. Use it to measure real drafts against a target of realistic size.
    """
    if (parameters is None) == (intermediate_size is None):
        raise UserError("give exactly one of --parameters and --intermediate-size")

    from vllm_spec_plugin.models import model_path
    from vllm_spec_tools.demo import widen as widening

    source = model_path("target") if model is None else model
    result = widening.widen(source, out, intermediate_size=intermediate_size, parameters=parameters)
    typer.echo(f"parameters         {result.parameters_before:,} -> {result.parameters_after:,}")
    typer.echo(f"intermediate size  {result.intermediate_size_before:,} -> {result.intermediate_size_after:,}")
    typer.echo(f"size on disk       {result.bytes_on_disk / 1e6:,.1f} MB")
