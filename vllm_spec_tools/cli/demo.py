"""`vllm-spec demo`: the same prompts without and with speculation, and a verdict."""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import httpx
import typer
from openai import OpenAIError
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.certify.baseline import QUICK
from vllm_spec_tools.cli.errors import fail, new_console
from vllm_spec_tools.cli.init import example
from vllm_spec_tools.cli.options import ReportFiles, grouped
from vllm_spec_tools.demo.answers import CHATS, PROMPTS
from vllm_spec_tools.demo.pairs import Pair, Servers, ask_in_pairs
from vllm_spec_tools.demo.verdict import line, report_of
from vllm_spec_tools.demo.widen import widen
from vllm_spec_tools.engines.memory import beside_others
from vllm_spec_tools.engines.model_source import model_source
from vllm_spec_tools.engines.serving import Server, runs_on_cpu
from vllm_spec_tools.progress import shown_engines
from vllm_spec_tools.report import plural, write
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.vllm_json import check_native

# With the bundled target's outputs, and steps of 10 to 30 ms on a CPU, as those of 8B to 70B models on GPUs.
_PARAMETERS = 100_000_000
# Of each server, on a GPU; on a CPU see `serving.cpu_environment`.
_KV_BYTES = 2 << 30
_NOISE_BUDGET_SECONDS = 30.0
# Of `certify --quick`: as many settings and checks, with fewer samples.
_CERTIFY = dataclasses.replace(QUICK, greedy=16, sampling_prompts=2, samples=200, seconds=45.0)
# Of a real model, whose steps take ten times as long on a CPU: no samples.
_CERTIFY_CHAT = dataclasses.replace(_CERTIFY, greedy=4, samples=0)
_NEXT = """\
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
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Pairs of answers per prompt. [default: 2; of chat models 1]")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One server, asked without and with drafts; three pairs; no certification.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the servers to start.")] = 600.0,
    *,
    files: ReportFiles,
) -> None:
    """Serve a model without and with speculation, compare speed and outputs, and test exactness.

    Both servers run at once and answer alternately, so that other work on the machine slows both. Takes three to
    ten minutes on two cores, longest where models are compiled for the first time, less with --quick. Without --png
    the picture is vllm-spec-demo.png.
    """
    console = new_console()
    if files.png is None and find_spec("matplotlib") is not None:
        files = dataclasses.replace(files, png=Path("vllm-spec-demo.png"))
    source = None if model is None else model_source("--model", model, "target")
    chat = source is not None and _has_chat_template(Path(source))
    rounds = 1 if quick else rounds or (1 if chat else 2)
    prompts: tuple[str, ...] = (CHATS if chat else PROMPTS)[: 3 if quick else None]
    with tempfile.TemporaryDirectory(prefix="vllm-spec-demo-") as name:
        folder = Path(name)
        if config is None:
            config = folder / "plugin.yaml"
            config.write_text(example("draft_model" if source is None else "suffix"), encoding="utf-8")
        check_native(load_config(config), str(config))
        if source is None:
            source = str(folder / "target-100M")
            widen(model_path("target"), Path(source), _PARAMETERS)
        servers = _servers(source, config.absolute(), _server_options(model is None, chat), timeout, quick)
        console.print(f"{len(prompts)} prompts, {rounds} pairs of answers each, up to {max_tokens} tokens.")
        pairs = _measure(servers, prompts, rounds, max_tokens, chat, console)
        # The bundled target has the outputs of the widened one, and samples many times faster.
        certified = source if model is not None else str(model_path("target"))
        exactness, problems = (None, []) if quick else _certify(certified, config, folder, chat, console)
    origin = provenance(sys.argv[1:], 0, prompts, {"target": source}) | {"rounds": rounds}
    in_16_bits = model is not None and not runs_on_cpu()
    report = report_of(pairs, prompts, exactness, problems, origin, in_16_bits=in_16_bits)
    if quick:
        note = "--quick: the same server answers without speculation, with spec: off."
        report = dataclasses.replace(report, notes=[note])
    write(report, **vars(files))
    console.print()
    # In a terminal the verdict is last, where it is seen.
    write(dataclasses.replace(report, conclusion=()), terminal=console)
    console.print()
    for sentence in report.conclusion:
        console.print(Text(sentence, style="bold"), soft_wrap=True)
    if report.problems:
        fail("; ".join(report.problems), 1)
    missing = "No picture without matplotlib: pip install 'vllm-spec-plugin[plot]'"
    picture = f"Picture: {files.png}" if files.png else missing
    console.print(f"\n{picture}\n\n{_NEXT}", markup=False, highlight=False, soft_wrap=True)


def _has_chat_template(folder: Path) -> bool:
    """Returns whether a model's folder has one; of hub names it is not known."""
    config = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        config.is_file() and "chat_template" in json.loads(config.read_text(encoding="utf-8"))
    )


def _servers(target: str, config: Path, options: list[str], timeout: float, quick: bool) -> Servers:
    # The servers' front ends and this client need a core too, or they stall the workers.
    environment = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"} if len(os.sched_getaffinity(0)) > 1 else {}
    plain, drafted = (
        Server(target, file, extra_args=options, environment=environment, timeout=timeout, console=Console(quiet=True))
        for file in (None, config)
    )
    return Servers(drafted if quick else plain, drafted)


def _measure(
    servers: Servers, prompts: tuple[str, ...], rounds: int, max_tokens: int, chat: bool, console: Console
) -> list[Pair]:
    total, shown = rounds * len(prompts), list[Pair]()

    def show(pair: Pair) -> None:
        shown.append(pair)
        console.print(Text(line(len(shown), total, prompts[pair.prompt], pair)), soft_wrap=True)
        if console.is_terminal and len(shown) <= len(prompts):
            answers = {"without speculation": pair.plain, "with speculation": pair.drafted}
            panels = [
                Panel(Text(one.text.strip()), title=f"{name}, {one.seconds:.1f} s") for name, one in answers.items()
            ]
            console.print(Columns(panels, width=console.width // 2 - 1))

    try:
        with contextlib.ExitStack() as stack:
            # Starting takes most of the time.
            with console.status(
                f"starting {plural(len(servers.each), 'server')} on {len(os.sched_getaffinity(0))} cores"
            ):
                for server in servers.each:
                    stack.enter_context(server)
            return ask_in_pairs(servers, prompts, rounds, max_tokens, NoiseGate(_NOISE_BUDGET_SECONDS), show, chat)
    except (OpenAIError, httpx.HTTPError) as error:
        raise UserError(f"a server did not answer: {error}") from None


def _server_options(is_bundled: bool, chat: bool) -> list[str]:
    if runs_on_cpu():
        # A model of 30 layers is compiled for four minutes, and is hardly faster then.
        return ["--gpu-memory-utilization", "0.4", *["--enforce-eager"] * chat]
    given = beside_others(_KV_BYTES) | {"max_model_len": "auto"} | ({"dtype": "float32"} if is_bundled else {})
    return [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", str(value))]


def _certify(target: str, config: Path, folder: Path, chat: bool, console: Console) -> tuple[str, list[str]]:
    """Returns the verdict in words, and problems."""
    from vllm_spec_tools.certify.report import verdict
    from vllm_spec_tools.certify.session import Certification, certify
    from vllm_spec_tools.engines.memory import context_of

    sizes = _CERTIFY_CHAT if chat and runs_on_cpu() else _CERTIFY
    plan = Certification(target, config, context_of(target), {}, None, sizes, enforce_eager=True)
    what = "greedy, sampled, seeded and preempted" if sizes.samples else "greedy, seeded and JSON"
    console.print(f"Testing exactness: {what} requests (a minute or two).")
    with shown_engines(console) as say:
        found = certify(plan, folder, {}, say)
    told = verdict(found).rstrip(".") + ("" if sizes.samples else "; sampled outputs not tested")
    drafted = sum(check.drafted for check in found.checks)
    return f"{told[0].lower()}{told[1:]} ({drafted:,} draft tokens verified)", [told] if found.failed else []
