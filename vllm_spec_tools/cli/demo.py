"""`vllm-spec demo`: the same prompts without and with speculation, and a verdict."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_spec_tools.cli.options import ReportPages, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_spec_tools.demo.pairs import Pair
    from vllm_spec_tools.engines.serving import Server

# With the bundled target's outputs, and steps of 10 to 30 ms on a CPU, as those of 8B to 70B models on GPUs.
_PARAMETERS = 100_000_000
# Of each server, on a GPU; on a CPU see `serving.cpu_environment`.
_KV_BYTES = 2 << 30
_START_SECONDS = 600.0
_NEXT = """
Next commands:
  vllm-spec init ngram --out plugin.yaml                        a file with every key explained
  vllm-spec doctor --model MODEL --config plugin.yaml           what would be refused for your model?
  vllm-spec certify --quick --model MODEL --config plugin.yaml  are its outputs exact on this machine?
  vllm-spec bench --recommend --model MODEL --prompts FILE      does it pay for your traffic?
  vllm serve MODEL --speculative-config plugin.yaml             serves it"""


@grouped
def demo(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A plugin.yaml. [default: the bundled draft model; with --model, suffix]"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Folder or hub name of another target, or smollm2, which is fetched. Chat models are asked as such. "
            "[default: the bundled one, widened to 100M weights]"
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum output tokens per answer.")] = 96,
    quick: Annotated[
        bool, typer.Option("--quick", help="One server, asked without and with drafts; three pairs.")
    ] = False,
    *,
    files: ReportPages,
) -> None:
    """Serve a model without and with speculation, and compare speed and outputs.

    Both servers run at once and answer alternately, so that other work on the machine slows both. Takes three to
    ten minutes on two cores, longest where models are compiled for the first time, less with --quick.
    """
    from vllm_spec_plugin.config import load_config
    from vllm_spec_plugin.models import model_path
    from vllm_spec_tools.cli.errors import new_console, write_or_fail
    from vllm_spec_tools.cli.init import example
    from vllm_spec_tools.demo.pairs import CHATS, PROMPTS
    from vllm_spec_tools.demo.verdict import report_of
    from vllm_spec_tools.demo.widen import widen
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.engines.serving import runs_on_cpu
    from vllm_spec_tools.report.provenance import provenance
    from vllm_spec_tools.vllm_json import check_native

    console = new_console()
    source = None if model is None else model_source("--model", model, "target")
    chat = source is not None and _has_chat_template(Path(source))
    prompts = (CHATS if chat else PROMPTS)[: 3 if quick else None]
    with tempfile.TemporaryDirectory(prefix="vllm-spec-demo-") as name:
        folder = Path(name)
        if config is None:
            config = folder / "plugin.yaml"
            config.write_text(example("draft_model" if source is None else "suffix"), encoding="utf-8")
        check_native(load_config(config), str(config))
        if source is None:
            source = str(folder / "target-100M")
            widen(model_path("target"), Path(source), _PARAMETERS)
        servers = _servers(source, config.absolute(), _server_options(model is None, chat), quick)
        pairs = _measure(servers, prompts, 1 if chat or quick else 2, max_tokens, chat, console)
    in_16_bits = model is not None and not runs_on_cpu()
    origin = provenance(sys.argv[1:], 0, prompts, {"target": source})
    write_or_fail(report_of(pairs, prompts, origin, in_16_bits=in_16_bits), files)
    console.print(_NEXT, markup=False, highlight=False, soft_wrap=True)


def _has_chat_template(folder: Path) -> bool:
    """Returns whether a model's folder has one; of hub names it is not known."""
    config = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        config.is_file() and "chat_template" in json.loads(config.read_text(encoding="utf-8"))
    )


def _server_options(is_bundled: bool, chat: bool) -> list[str]:
    from vllm_spec_tools.engines.memory import beside_others
    from vllm_spec_tools.engines.serving import runs_on_cpu

    if runs_on_cpu():
        # A model of 30 layers is compiled for four minutes, and is hardly faster then.
        return ["--gpu-memory-utilization", "0.4", *["--enforce-eager"] * chat]
    given = beside_others(_KV_BYTES) | {"max_model_len": "auto"} | ({"dtype": "float32"} if is_bundled else {})
    return [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", str(value))]


def _servers(target: str, config: Path, options: list[str], quick: bool) -> "tuple[Server, Server]":
    """Returns a server without and one with speculation, or one for both."""
    from rich.console import Console

    from vllm_spec_tools.engines.serving import Server

    # The servers' front ends and this client need a core too, or they stall the workers.
    environment = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"} if len(os.sched_getaffinity(0)) > 1 else {}
    plain, drafted = (
        Server(
            target,
            file,
            extra_args=options,
            environment=environment,
            timeout=_START_SECONDS,
            console=Console(quiet=True),
        )
        for file in (None, config)
    )
    return (drafted if quick else plain), drafted


def _measure(
    servers: "tuple[Server, Server]",
    prompts: tuple[str, ...],
    rounds: int,
    max_tokens: int,
    chat: bool,
    console: "Console",
) -> "list[Pair]":
    """Starts the servers, asks them, and shows each pair of answers."""
    import httpx
    from openai import OpenAIError
    from rich.columns import Columns
    from rich.panel import Panel
    from rich.text import Text

    from vllm_spec_plugin.schema.errors import UserError
    from vllm_spec_tools.demo.pairs import ask_in_pairs
    from vllm_spec_tools.demo.verdict import line

    total, num_shown = rounds * len(prompts), 0

    def show(pair: "Pair") -> None:
        nonlocal num_shown
        num_shown += 1
        console.print(Text(line(num_shown, total, prompts[pair.prompt], pair)), soft_wrap=True)
        if console.is_terminal and num_shown <= len(prompts):
            answers = {"without speculation": pair.plain, "with speculation": pair.drafted}
            panels = [
                Panel(Text(one.text.strip()), title=f"{arm}, {one.seconds:.1f} s") for arm, one in answers.items()
            ]
            console.print(Columns(panels, width=console.width // 2 - 1))

    try:
        with contextlib.ExitStack() as stack:
            # Starting takes most of the time.
            with console.status("starting servers"):
                for server in dict.fromkeys(servers):
                    stack.enter_context(server)
            return ask_in_pairs(servers, prompts, rounds, max_tokens, show, chat)
    except (OpenAIError, httpx.HTTPError) as error:
        raise UserError(f"a server did not answer: {error}") from None
