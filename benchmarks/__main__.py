"""Measurements of parts, and the models that they need: `python -m benchmarks --help`.

Only in the repository; what operators run is `vllm-spec`.
"""

import typer

from benchmarks.commands.coupling import coupling
from benchmarks.commands.real_model import real_model
from benchmarks.commands.restarts import restarts
from benchmarks.commands.widen import widen
from vllm_spec_tools.cli.errors import Commands

app = typer.Typer(
    name="python -m benchmarks",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (coupling, real_model, restarts, widen):
    app.command()(command)

if __name__ == "__main__":
    app()
