"""The command line. Each command imports what it needs when it runs, so that `--help` is quick."""

import typer

from vllm_spec_plugin.cli.check import check
from vllm_spec_plugin.cli.mock_server import mock_server
from vllm_spec_plugin.cli.theory import theory
from vllm_spec_plugin.cli.train_demo import train_demo
from vllm_spec_plugin.cli.train_medusa import train_medusa
from vllm_spec_plugin.cli.widen import widen

app = typer.Typer(
    name="vllm-spec",
    help="Speculative decoding for vLLM: check a configuration, measure a drafter, see it work.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # its paragraphs flow; the others keep the line ends of the docstring
)
bench = typer.Typer(help="Measure: parts by themselves, and arms side by side, without a server.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.command("check")(check)
app.command("mock-server")(mock_server)
app.command("theory")(theory)
app.command("train-demo")(train_demo)
app.command("train-medusa")(train_medusa)
app.command("widen")(widen)

# A forwarded command reads its own options, `--help` among them.
_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def _forward(context: typer.Context, module: str, function: str) -> None:
    """Hands the rest of the command line to a command whose module is not cheap to import."""
    from importlib import import_module

    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    command.command()(getattr(import_module(module), function))
    typer.main.get_command(command).main(args=context.args, prog_name=context.command_path)


@bench.command("ngram", context_settings={**_FORWARD, "help_option_names": []})
def bench_ngram(context: typer.Context) -> None:
    """Time the n-gram drafter and count how many of its tokens are right."""
    _forward(context, "vllm_spec_plugin.cli.bench_ngram", "bench_ngram")


@bench.command("drafting", context_settings={**_FORWARD, "help_option_names": []})
def bench_drafting(context: typer.Context) -> None:
    """Compare drafting with a small model to stock vLLM's and to no speculation."""
    _forward(context, "vllm_spec_plugin.cli.bench_drafting", "bench_drafting")


@bench.command("planning", context_settings={**_FORWARD, "help_option_names": []})
def bench_planning(context: typer.Context) -> None:
    """Time the policy that chooses draft lengths, per step."""
    _forward(context, "vllm_spec_plugin.cli.bench_planning", "bench_planning")


@bench.command("load", context_settings={**_FORWARD, "help_option_names": []})
def bench_load(context: typer.Context) -> None:
    """Compare throughput under 1 to 32 concurrent streams."""
    _forward(context, "vllm_spec_plugin.cli.bench_load", "bench_load")


@app.command("plan", context_settings={**_FORWARD, "help_option_names": []})
def plan(context: typer.Context) -> None:
    """Tell whether speculation pays for a model and its traffic, and with what."""
    _forward(context, "vllm_spec_plugin.cli.plan", "plan")


@app.command("demo", context_settings={**_FORWARD, "help_option_names": []})
def demo(context: typer.Context) -> None:
    """Run the bundled models with and without speculation and compare."""
    _forward(context, "vllm_spec_plugin.cli.demo", "demo")
