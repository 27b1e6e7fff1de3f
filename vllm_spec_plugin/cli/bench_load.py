"""`vllm-spec bench load`: throughput of arms side by side, under 1 to 32 concurrent streams."""

import contextlib
import json
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.bench.arms import ArmError
from vllm_spec_plugin.bench.load import report
from vllm_spec_plugin.bench.load.arms import STOCK_METHODS, LoadArm, Wanted, engines, plan_load_arms
from vllm_spec_plugin.bench.load.sweep import Plan, SweepResults, num_runs, run_sweep
from vllm_spec_plugin.bench.load.switching import WINDOW
from vllm_spec_plugin.bench.load.workloads import BEGINNINGS, EASY, SWITCHING, WORKLOADS, Sizes
from vllm_spec_plugin.bench.plans import arm_environment, engine_arguments, model_source
from vllm_spec_plugin.bench.prompts import PromptsError, read_prompts
from vllm_spec_plugin.bench.provenance import provenance
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.bench.running import show_disturbance, shown_progress, started_arms
from vllm_spec_plugin.config import MAX_TOKENS, ConfigError
from vllm_spec_plugin.demo import model_path
from vllm_spec_plugin.serving import ServerError, runs_on_cpu

_MOST_STREAMS = 1024
# Of the device's memory, for all engines together; the keys and values of a sweep need a fraction of it.
_MEMORY = 0.8
_MOST_MEMORY = 0.5


def bench_load(
    target: Annotated[
        str | None, typer.Option(help="Folder or hub name of the target. [default: the bundled one]")
    ] = None,
    proposer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A plugin.yaml whose proposer the arms of --fixed and --optimal draft with; its draft_length is "
            "ignored. [default: the bundled draft, drafting greedily]",
        ),
    ] = None,
    fixed: Annotated[
        str,
        typer.Option(
            metavar="K,...|none",
            help="Arms of fixed draft length; the best at each level is named. 0 is the plugin "
            "with drafts switched off.",
        ),
    ] = "1,2,4,8",
    optimal: Annotated[bool, typer.Option(help="An arm with draft_length policy optimal.")] = True,
    optimal_tokens: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Most tokens that it drafts.")] = 8,
    stock: Annotated[
        list[str] | None,
        typer.Option(metavar="draft_model|ngram", help="An arm with vLLM's own method; give it once per method."),
    ] = None,
    stock_tokens: Annotated[int, typer.Option(min=1, max=32, help="K of these.")] = 4,
    config: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="One more arm, a plugin.yaml as it is; give it once per file."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(WORKLOADS),
            help="What the streams ask for, as often as there are workloads: predictable text, unpredictable text, "
            "both among the streams, or all streams turning from one to the other and back. [default: easy]",
        ),
    ] = None,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Numbers of concurrent streams.")] = "1,2,4,8,16,32",
    switching_levels: Annotated[str, typer.Option(metavar="N,...", help="Those of the workload switching.")] = "1,4",
    tokens: Annotated[int, typer.Option(min=2, help="Output tokens per stream after which a run ends.")] = 64,
    least_tokens: Annotated[int, typer.Option(min=2, help="But not before the streams have so many together.")] = 192,
    request_tokens: Annotated[
        int, typer.Option(min=2, max=1024, help="Output tokens per request, on average: half to one and a half of it.")
    ] = 64,
    phase_tokens: Annotated[
        int, typer.Option(min=2 * WINDOW, max=800, help="Output tokens per stream and phase of switching.")
    ] = 400,
    temperature: Annotated[
        float, typer.Option(min=0.1, max=10.0, help="Of unpredictable text; predictable text is at 0.")
    ] = 1.5,
    rounds: Annotated[int, typer.Option(min=1, help="How often each arm does everything; they take turns.")] = 3,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts to complete, a JSON list. [default: short Python beginnings]"),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds to spend, in all, on waiting for other processes to pause and on repeating "
            "what they disturbed.",
        ),
    ] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the first round; each has its own.")] = 0,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write everything here.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the tables here, as Markdown.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the ratios into this file.")] = None,
) -> None:
    """Compare throughput under load: no speculation, fixed draft lengths, `optimal`, stock vLLM's methods.

    At each level so many streams always have a request in flight; who has got a text asks for the
    next. Engines in processes of their own, all in one run: arms take turns within each round.
    Leave the machine alone meanwhile. Interrupted, it reports the rounds that are done.
    """
    console, errors = Console(), Console(stderr=True)
    # A terminated run takes its engines along, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        texts = BEGINNINGS if prompts is None else read_prompts(prompts)
        workloads = _words("--workload", workload or [EASY], WORKLOADS)
        counts = _numbers("--levels", levels, _MOST_STREAMS), _numbers("--switching-levels", switching_levels, 64)
        cells = tuple((name, level) for name in workloads for level in counts[name == SWITCHING])
        for option, path in (("--json", json_path), ("--markdown", markdown), ("--png", png)):
            if path is not None and not path.absolute().parent.is_dir():
                raise typer.BadParameter(f"{option} {path}: there is no folder {path.absolute().parent}")
        wanted = Wanted(
            proposer,
            () if fixed == "none" else _numbers("--fixed", fixed, MAX_TOKENS, least=0),
            optimal_tokens if optimal else None,
            _words("--stock", stock or [], STOCK_METHODS),
            stock_tokens,
            tuple(dict.fromkeys(config or ())),
        )
        sizes = Sizes(request_tokens, tokens, least_tokens, phase_tokens, temperature)
        plan = Plan(cells, texts, sizes, rounds, seed)
        target = model_source("--target", target, "target")
        origin = provenance(sys.argv[1:], seed, texts) | {"target": target, "rounds": rounds, "sizes": asdict(sizes)}
        with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as folder:
            arms = plan_load_arms(wanted, str(model_path("draft")), Path(folder))
            machine = QuietMachine(patience)
            results, facts = _measure(arms, plan, target, enforce_eager, machine, Path(folder), errors)
    except (PromptsError, ConfigError, ServerError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    except ArmError as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None
    origin["arms"] = {
        name: {"speculation": arm.plan.settings, "spec_tokens": arm.spec_tokens, "engine": facts[name]}
        for name, arm in arms.items()
    }
    _show(results, console)
    _write(results, origin | {"rounds": results.rounds}, target, json_path, markdown, png)
    if results.rounds < rounds:
        errors.print(f"[red]error:[/red] interrupted: these are the first {results.rounds} of {rounds} rounds")
        raise typer.Exit(1)


def _measure(
    arms: dict[str, LoadArm],
    plan: Plan,
    target: str,
    enforce_eager: bool,
    machine: QuietMachine,
    folder: Path,
    console: Console,
) -> tuple[SweepResults, dict[str, dict[str, Any]]]:
    """Starts the engines, runs the rounds, ends the engines: the results, and what each arm's chose by itself."""
    groups = engines(arms)
    memory = min(_MEMORY / len(groups), _MOST_MEMORY)
    arguments = {
        name: engine_arguments(arms[members[0]].plan, target, plan.seed, enforce_eager, memory)
        for name, members in groups.items()
    }
    with started_arms(arguments, arm_environment(target), folder, console) as started:
        running = {member: started[name] for name, members in groups.items() for member in members}
        with shown_progress(num_runs(len(arms), plan), console) as on_run:
            results = run_sweep(arms, running, plan, machine, on_run)
        return results, {name: engine.facts for name, engine in running.items()}


def _show(results: SweepResults, console: Console) -> None:
    for table in report.tables(results):
        console.print()
        console.print(table)
    for text in (*report.sentences(results), *report.notes(results, runs_on_cpu())):
        console.print()
        console.print(escape(text))
    show_disturbance(results.others, console)


def _write(
    results: SweepResults,
    origin: dict[str, Any],
    target: str,
    json_path: Path | None,
    markdown: Path | None,
    png: Path | None,
) -> None:
    if json_path is not None:
        json_path.write_text(json.dumps(report.to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    if png is not None:
        from vllm_spec_plugin.bench.load.picture import draw

        draw(results, f"Throughput under load, {Path(target).name}", png)
    if markdown is not None:
        address = None
        if png is not None:
            with contextlib.suppress(ValueError):  # not below the page's folder: then its whole path
                address = png.absolute().relative_to(markdown.absolute().parent).as_posix()
            address = address or str(png)
        markdown.write_text(report.to_markdown(results, origin, runs_on_cpu(), address), encoding="utf-8")


def _numbers(option: str, text: str, most: int, least: int = 1) -> tuple[int, ...]:
    items = [item.strip() for item in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", item, re.ASCII) and least <= int(item) <= most for item in items):
        allowed = f"whole numbers from {least} to {most}, such as 1,2,4"
        raise typer.BadParameter(f"{option}: got {text!r}; allowed: {allowed}")
    return tuple(dict.fromkeys(map(int, items)))


def _words(option: str, given: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    for word in given:
        if word not in allowed:
            raise typer.BadParameter(f"{option}: got {word!r}; allowed: {', '.join(allowed)}")
    return tuple(dict.fromkeys(given))
