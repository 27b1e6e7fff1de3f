"""The command line. Each command imports its modules when it runs, so that `--help` is fast."""

from typing import Annotated

import typer

from vllm_spec_plugin import __version__
from vllm_spec_tools.cli.bench import bench
from vllm_spec_tools.cli.certify import certify
from vllm_spec_tools.cli.check import check
from vllm_spec_tools.cli.demo import demo
from vllm_spec_tools.cli.doctor import doctor
from vllm_spec_tools.cli.errors import Commands
from vllm_spec_tools.cli.fetch import fetch
from vllm_spec_tools.cli.init import convert, init, schema
from vllm_spec_tools.cli.loadtest import loadtest
from vllm_spec_tools.cli.plan import plan
from vllm_spec_tools.cli.train import train_eagle3, train_medusa

app = typer.Typer(
    name="vllm-spec",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # reflows paragraphs; the other modes keep the docstring's line ends
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vllm_spec_plugin {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Speculative decoding for vLLM: check configurations, plan and measure speedups, certify exactness."""


# Locust parses its own options, `--help` included.
_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}

# What follows "--" are vLLM's own options.
app.command("bench", context_settings={"allow_extra_args": True})(bench)
app.command("certify", context_settings={"allow_extra_args": True})(certify)
app.command("check", context_settings={"ignore_unknown_options": True})(check)
app.command("convert")(convert)
app.command("demo")(demo)
app.command("doctor", context_settings={"ignore_unknown_options": True})(doctor)
app.command("fetch")(fetch)
app.command("init")(init)
app.command("loadtest", context_settings={**_FORWARD, "help_option_names": []})(loadtest)
app.command("plan", context_settings={"allow_extra_args": True})(plan)
app.command("schema")(schema)
app.command("train-eagle3")(train_eagle3)
app.command("train-medusa")(train_medusa)
