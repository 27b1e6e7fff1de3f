"""`vllm-spec bench drafting`: drafting with a small model against stock vLLM's and against none, side by side."""

import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.bench import report
from vllm_spec_plugin.bench.arms import ArmError
from vllm_spec_plugin.bench.comparison import NONE, PLUGIN, STOCK, Results, Workload, num_runs, run_all
from vllm_spec_plugin.bench.plans import ArmPlan, arm_environment, engine_arguments, model_source, plan_arms
from vllm_spec_plugin.bench.prompts import PROMPTS, PromptsError, read_prompts
from vllm_spec_plugin.bench.provenance import provenance
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.bench.running import show_disturbance, shown_progress, started_arms
from vllm_spec_plugin.config import ConfigError
from vllm_spec_plugin.serving import ServerError, runs_on_cpu


def bench_drafting(
    target: Annotated[
        str | None, typer.Option(help="Folder or hub name of the target. [default: the bundled one]")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="Folder or hub name of the draft. [default: the bundled one]")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="none|stock|plugin|FILE",
            help="What to compare, as often as there are arms: no speculation, vLLM's draft_model, the plugin's, or a "
            "plugin.yaml, which has its own draft and K. Greedy outputs are compared with the first one's. "
            "[default: none, stock, plugin]",
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, max=32, help="K, tokens drafted per request and step.")] = 4,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Requests at once. [default: 1, 8]")] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(min=0.0, max=10.0, help="Of all requests. [default: 0, 1]")
    ] = None,
    output_tokens: Annotated[int, typer.Option(min=2, help="Tokens that each request gets.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="How often each arm does everything; they take turns.")] = 7,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to complete, a JSON list. [default: Python beginnings]")
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
    profile: Annotated[
        bool, typer.Option("--profile", help="Further rounds that tell which parts of drafting take how long.")
    ] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write everything here.")
    ] = None,
) -> None:
    """Compare drafting with a small model to stock vLLM's and to no speculation.

    One engine per arm, each in a process of its own, all in one run: they take turns, so that what
    changes on the machine meets all alike. Leave the machine alone meanwhile: other processes
    make every figure worse, and not every arm's by as much.
    """
    console, errors = Console(), Console(stderr=True)
    # A terminated run takes its engines along, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        texts = PROMPTS if prompts is None else read_prompts(prompts)
        batches, temperatures = _each_once(batch or [1, 8]), _each_once(temperature or [0.0, 1.0])
        if max(batches) > len(texts):
            raise typer.BadParameter(
                f"--batch {max(batches)} needs as many prompts, and there are {len(texts)}; allowed: smaller batches, "
                "or --prompts with more texts"
            )
        if json_path is not None and not json_path.absolute().parent.is_dir():
            raise typer.BadParameter(f"--json {json_path}: there is no folder {json_path.absolute().parent}")
        workload = Workload(texts, batches, temperatures, output_tokens, rounds, seed, profile)
        target, draft = model_source("--target", target, "target"), model_source("--draft", draft, "draft")
        origin = provenance(sys.argv[1:], seed, texts) | {"target": target, "draft": draft}
        with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as folder:
            plans = plan_arms(arm or [NONE, STOCK, PLUGIN], draft, tokens, Path(folder))
            results, facts = _measure(
                plans, workload, target, enforce_eager, QuietMachine(patience), Path(folder), errors
            )
    except (PromptsError, ConfigError, ServerError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    except ArmError as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None
    if json_path is not None:
        origin["arms"] = {name: {"speculation": plan.settings, "engine": facts[name]} for name, plan in plans.items()}
        json_path.write_text(json.dumps(report.to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    _show(results, runs_on_cpu(), console)
    if wrong := report.num_wrong(results):
        errors.print(f"[red]error:[/red] {wrong} greedy outputs differ from those of arm {escape(results.reference)}")
        raise typer.Exit(1)


def _measure(
    plans: dict[str, ArmPlan],
    workload: Workload,
    target: str,
    enforce_eager: bool,
    machine: QuietMachine,
    folder: Path,
    console: Console,
) -> tuple[Results, dict[str, dict[str, Any]]]:
    """Starts the arms, runs the rounds, and ends the arms: the results, and what each engine chose by itself."""
    arguments = {name: engine_arguments(plan, target, workload.seed, enforce_eager) for name, plan in plans.items()}
    num_draft_tokens = {name: plan.num_draft_tokens for name, plan in plans.items()}
    with started_arms(arguments, arm_environment(target), folder, console) as arms:
        with shown_progress(num_runs(len(arms), workload), console) as on_run:
            results = run_all(arms, num_draft_tokens, workload, machine, on_run)
        return results, {name: arm.facts for name, arm in arms.items()}


def _each_once(values: list[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _show(results: Results, on_cpu: bool, console: Console) -> None:
    for table in report.tables(results):
        console.print()
        console.print(table)
    for text in (*report.sentences(results), *report.notes(results, on_cpu)):
        console.print()
        console.print(escape(text))
    show_disturbance(results.others, console)
