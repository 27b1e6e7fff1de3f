"""`vllm-spec bench`: arms side by side under one or more concurrent streams; below it, parts by themselves."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_spec_plugin.cli.bench_drafting import bench_drafting
from vllm_spec_plugin.cli.bench_host import bench_host
from vllm_spec_plugin.cli.bench_ngram import bench_ngram
from vllm_spec_plugin.cli.bench_options import (
    Arms,
    Draft,
    EnforceEager,
    JsonFile,
    Markdown,
    OptimalTokens,
    Patience,
    Prompts,
    Proposer,
    Rounds,
    Seed,
    Target,
)
from vllm_spec_plugin.cli.bench_planning import bench_planning
from vllm_spec_plugin.cli.bench_record import bench_record
from vllm_spec_plugin.cli.bench_replay import bench_replay
from vllm_spec_plugin.cli.bench_verification import bench_verification
from vllm_spec_plugin.cli.errors import fail
from vllm_spec_plugin.tools.bench.load.switching import WINDOW
from vllm_spec_plugin.tools.bench.load.workloads import EASY, SWITCHING, WORKLOADS

if TYPE_CHECKING:
    from rich.console import Console


bench = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
bench.command("drafting")(bench_drafting)
bench.command("host")(bench_host)
bench.command("ngram")(bench_ngram)
bench.command("planning")(bench_planning)
bench.command("record")(bench_record)
bench.command("replay")(bench_replay)
bench.command("verification")(bench_verification)

_ARMS = ("none", "optimal", "fixed:1,2,4,8")
_MOST_STREAMS, _MOST_SWITCHING_STREAMS = 1024, 64


@bench.callback()
def compare(
    context: typer.Context,
    arm: Arms = None,
    proposer: Proposer = None,
    optimal_tokens: OptimalTokens = 8,
    target: Target = None,
    draft: Draft = None,
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
    rounds: Rounds = 3,
    prompts: Prompts = None,
    patience: Patience = 120.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    json_path: JsonFile = None,
    markdown: Markdown = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw ratios and times per token into this file.")
    ] = None,
) -> None:
    """Compare speculation with none: tokens per second, latency, and whether greedy outputs are the same.

    At each level so many streams always have a request in flight; who has got a text asks for the
    next. Arms are engines in processes of their own, all in one run: they take turns within each round.
    Without --arm they are none, optimal and fixed:1,2,4,8, which draft greedily with the draft model.
    Leave the machine alone meanwhile. Interrupted, it reports the rounds that are done.

    The commands below measure parts: their options are their own.
    """
    from rich.console import Console

    console, errors = Console(), Console(stderr=True)
    if context.invoked_subcommand is not None:
        _refuse_options(context, errors)
        return

    import sys
    import tempfile
    from dataclasses import asdict

    from vllm_spec_plugin.tools.bench.arm_words import choose_arms
    from vllm_spec_plugin.tools.bench.input import check_output, whole_numbers, words
    from vllm_spec_plugin.tools.bench.load.report.output import Files, show, write
    from vllm_spec_plugin.tools.bench.load.sweep import Plan, num_runs, run_sweep
    from vllm_spec_plugin.tools.bench.load.workloads import BEGINNINGS, Sizes
    from vllm_spec_plugin.tools.bench.planned_arms import base_of, plan_arms
    from vllm_spec_plugin.tools.bench.plans import model_source
    from vllm_spec_plugin.tools.bench.prompts import read_prompts
    from vllm_spec_plugin.tools.bench.provenance import provenance
    from vllm_spec_plugin.tools.bench.quiet import QuietMachine
    from vllm_spec_plugin.tools.bench.running import describe, running_engines, shown_progress

    for option, path in (("--json", json_path), ("--markdown", markdown), ("--png", png)):
        check_output(option, path)
    texts = BEGINNINGS if prompts is None else read_prompts(prompts)
    workloads = words("--workload", workload or [EASY], WORKLOADS)
    steady = whole_numbers("--levels", levels, _MOST_STREAMS)
    turning = whole_numbers("--switching-levels", switching_levels, _MOST_SWITCHING_STREAMS)
    cells = tuple((name, level) for name in workloads for level in (turning if name == SWITCHING else steady))
    sizes = Sizes(request_tokens, tokens, least_tokens, phase_tokens, temperature)
    plan = Plan(cells, texts, sizes, rounds, seed)
    choices = choose_arms(arm or _ARMS)
    source = model_source("--target", target, "target")
    base = base_of(proposer, draft and model_source("--draft", draft, "draft"), "greedy")
    origin = provenance(sys.argv[1:], seed, texts) | {"target": source, "sizes": asdict(sizes)}
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        arms = plan_arms(choices, base, optimal_tokens, folder)
        with (
            running_engines(arms, source, seed, enforce_eager, folder, errors) as engines,
            shown_progress(num_runs(len(arms), plan), errors) as on_run,
        ):
            results = run_sweep(arms, engines, plan, QuietMachine(patience), on_run)
            origin |= {"rounds": results.rounds, "arms": describe(arms, engines)}
    show(results, console)
    write(results, origin, Files(json_path, markdown, png))
    problems = []
    if results.rounds < rounds:
        problems.append(f"interrupted: these are the first {results.rounds} of {rounds} rounds")
    if results.num_wrong:
        problems.append(f"{results.num_wrong} greedy outputs differ from those of arm {results.reference}")
    if problems:
        fail("; ".join(problems), 1)


def _refuse_options(context: typer.Context, errors: "Console") -> None:
    """Options of the comparison would do nothing for a part.

    Raises:
        Exit: there is one.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option, command = parameter.opts[0], context.invoked_subcommand
            fail(f"{option}: goes with `vllm-spec bench` itself; options of {command} come after its name", 2)
