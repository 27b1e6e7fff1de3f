"""`vllm-spec plan`: whether to switch speculation on for a model and its traffic, and with what."""

import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.bench.arms import ArmError
from vllm_spec_plugin.bench.input import InputError, check_output, whole_numbers
from vllm_spec_plugin.bench.plans import model_source
from vllm_spec_plugin.bench.provenance import provenance
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.config import MAX_TOKENS, ConfigError
from vllm_spec_plugin.planner.candidates import Heads
from vllm_spec_plugin.planner.forecast import TooLittleError
from vllm_spec_plugin.planner.measuring import Sizes
from vllm_spec_plugin.planner.planning import Wanted, make_plan
from vllm_spec_plugin.planner.plugin_yaml import plugin_yaml
from vllm_spec_plugin.planner.prompts import read_given
from vllm_spec_plugin.planner.report.page import show, to_markdown
from vllm_spec_plugin.planner.results import Results
from vllm_spec_plugin.planner.texts import as_traffic
from vllm_spec_plugin.proposers.draft_model.pair import DraftModelError, ModelSource, check_name, check_pair
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.serving import ServerError

_MOST_STREAMS = 256


def plan(
    model: Annotated[str, typer.Option(help="Folder or hub name of the model that is served.", show_default=False)],
    prompts: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help='What it is asked, JSON Lines: {"prompt": ...} or {"messages": [...]}, if wanted with "workload" (a '
            'word that figures are told apart by), "max_tokens" and "temperature". Or a JSON list of texts.',
        ),
    ],
    draft: Annotated[
        str | None, typer.Option(help="Folder or hub name of a draft model to consider.", show_default=False)
    ] = None,
    medusa: Annotated[
        str | None, typer.Option(help="Folder or hub name of Medusa heads to consider.", show_default=False)
    ] = None,
    concurrency: Annotated[
        str, typer.Option(metavar="N,...", help="Requests at once; the answer is for all of these, each counting alike.")
    ] = "1,8",
    tokens: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Longest draft to consider.")] = 8,
    output_tokens: Annotated[
        int, typer.Option(min=8, help="Output tokens of a request; a prompt's own max_tokens counts where it is less.")
    ] = 64,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Of prompts that have none of their own.")
    ] = 0.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each thing is measured; they take turns.")] = 2,
    verify: Annotated[
        bool, typer.Option(help="In the end run the best against no speculation, in a closed loop.")
    ] = True,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds to spend, in all, on waiting for other processes to pause and on repeating "
            "what they disturbed.",
        ),
    ] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the first round; each has its own.")] = 0,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write the recommended plugin.yaml here, if any is."),
    ] = None,
    out_anyway: Annotated[
        bool, typer.Option("--out-anyway", help="Also write --out where the answer is to leave it off.")
    ] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", show_default=False, help="Also write everything here.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="Also write the report here, as Markdown.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="Also draw the speedups into this file.")
    ] = None,
) -> None:
    """Tell whether to switch speculation on for a model and its traffic, with what, and what it gains.

    Measures on this machine what steps, drafts and prompts take and how often drafts are right, predicts
    every proposer's speedup from that, runs the best against no speculation, and recommends. n-grams are
    always considered, a draft model and Medusa heads where they are given. Two engines at most run at
    once. Leave the machine alone meanwhile.
    """
    console, errors = Console(), Console(stderr=True)
    # A terminated run takes its engines along, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        levels = whole_numbers("--concurrency", concurrency, _MOST_STREAMS)
        for option, path in (("--out", out), ("--json", json_path), ("--markdown", markdown), ("--png", png)):
            check_output(option, path)
        given = read_given(prompts)
        wanted = Wanted(
            model_source("--model", model, "target"),
            None if draft is None else model_source("--draft", draft, "draft"),
            None if medusa is None else _heads(model_source("--medusa", medusa, "medusa")),
            tokens,
            Sizes(tuple(sorted(levels)), rounds, seed),
            verify,
            enforce_eager,
        )
        _check_models(wanted, errors)
        traffic = as_traffic(given, wanted.model, temperature, output_tokens)
        origin = provenance(sys.argv[1:], seed, [prompt.text for prompt in traffic])
        origin |= {"model": wanted.model, "draft": wanted.draft, "medusa": medusa}
        with tempfile.TemporaryDirectory(prefix="vllm-spec-plan-") as folder:
            results = make_plan(wanted, traffic, origin, Path(folder), QuietMachine(patience), errors)
    except (InputError, ConfigError, DraftModelError, ServerError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    except (ArmError, TooLittleError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None
    show(results, console)
    _write(results, origin, json_path, markdown, png)
    if out is not None:
        _write_file(results, origin, out, out_anyway, console)


def _heads(model: str) -> Heads:
    check_heads(None, model, None, "--medusa")
    return Heads(model, read_heads_config(model))


def _check_models(wanted: Wanted, errors: Console) -> None:
    """Sees that the models fit, before any engine starts.

    Raises:
        DraftModelError: they do not.
    """
    target = ModelSource(wanted.model)
    check_name(wanted.model, "--model")
    warnings: list[str] = []
    if wanted.draft is not None:
        warnings += check_pair(target, ModelSource(wanted.draft), 1, None, "--draft")
    if wanted.heads is not None:
        warnings += check_heads(target, wanted.heads.model, None, "--medusa")
    for warning in warnings:
        errors.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)


def _write(
    results: Results, origin: dict[str, Any], json_path: Path | None, markdown: Path | None, png: Path | None
) -> None:
    if json_path is not None:
        from vllm_spec_plugin.planner.report.data import to_json

        json_path.write_text(json.dumps(to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    if png is not None:
        from vllm_spec_plugin.planner.report.picture import draw

        draw(results, f"Speculation plan, {Path(origin['model']).name}", png)
    if markdown is not None:
        address = None
        if png is not None:
            with contextlib.suppress(ValueError):  # not below the page's folder: then its whole path
                address = png.absolute().relative_to(markdown.absolute().parent).as_posix()
            address = address or str(png)
        markdown.write_text(to_markdown(results, origin, address), encoding="utf-8")


def _write_file(results: Results, origin: dict[str, Any], out: Path, anyway: bool, console: Console) -> None:
    console.print()
    if not results.choice.tokens:
        console.print(f"{escape(str(out))} is not written: nothing that was measured would draft.", soft_wrap=True)
        return
    if not (results.verdict.is_on or anyway):
        text = f"{escape(str(out))} is not written, as the answer is to leave it off; --out-anyway writes it."
        console.print(text, soft_wrap=True)
        return
    out.write_text(plugin_yaml(results.choice, results.verdict, origin), encoding="utf-8")
    console.print(f"{escape(str(out))} is written: vllm serve {escape(origin['model'])} "
                  f"--speculative-config {escape(str(out))}", soft_wrap=True)
