"""`vllm-spec bench host`: times a step's host work, outside the models, by part."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import (
    Draft,
    EnforceEager,
    JsonFile,
    Markdown,
    OptimalTokens,
    Patience,
    Rounds,
    Seed,
    Target,
)

_MOST_REQUESTS, _LEAST_BATCHED_TOKENS = 1024, 2048
_TARGETS = {"constant": False, "computed": True}


def bench_host(
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="ARM",
            help="Arm to compare; repeatable. As in `vllm-spec bench`, and ngram:K,... or draft_model:K,... (the "
            "plugin with that proposer; K = 0 drafts nothing). [default: none, stock:ngram, stock:draft_model, "
            "ngram:0,4, draft_model:0,4, optimal]",
        ),
    ] = None,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Numbers of requests per step.")] = "1,8,32,128,256",
    forward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="constant|computed",
            help="The target's forward pass: replaced by a constant, or computed. [default: both]",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, max=100, help="Steps per run and kind of measurement.")] = 32,
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="Temperature of all requests.")] = 0.0,
    optimal_tokens: OptimalTokens = 8,
    target: Target = None,
    draft: Draft = None,
    rounds: Rounds = 3,
    patience: Patience = 0.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    json_path: JsonFile = None,
    markdown: Markdown = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also plot the parts to this file.")] = None,
) -> None:
    """Time the parts of decode steps: the plugin, stock vLLM, and no speculation.

    All requests are in the middle of their scripted output. Each arm is an engine in its own process; the arms run
    alternately. CPU times are robust on a busy machine, wall times are not. Use one thread:
    `OMP_NUM_THREADS=1 taskset -c 0 vllm-spec bench host`.
    """
    import json
    import sys
    import tempfile

    from rich.markup import escape

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.host.comparison import ARMS, num_runs, plan_host_arms, run_all
    from vllm_spec_plugin.tools.bench.host.picture import draw
    from vllm_spec_plugin.tools.bench.host.records import HostJob
    from vllm_spec_plugin.tools.bench.host.report import NOTE, tables, to_json, to_markdown
    from vllm_spec_plugin.tools.bench.input import check_output, whole_numbers, words
    from vllm_spec_plugin.tools.bench.load.report.output import picture_address
    from vllm_spec_plugin.tools.bench.plans import model_source
    from vllm_spec_plugin.tools.bench.provenance import provenance
    from vllm_spec_plugin.tools.bench.quiet import QuietMachine
    from vllm_spec_plugin.tools.bench.running import describe, running_engines, show_report, shown_progress
    from vllm_spec_plugin.tools.bench.tables import new_table

    console, errors = new_console(), new_console(stderr=True)
    for option, path in (("--json", json_path), ("--markdown", markdown), ("--png", png)):
        check_output(option, path)
    numbers = whole_numbers("--levels", levels, _MOST_REQUESTS)
    targets = [_TARGETS[word] for word in words("--forward", forward or list(_TARGETS), list(_TARGETS))]
    cells = [(is_computed, num_requests) for is_computed in targets for num_requests in numbers]
    source, draft_source = model_source("--target", target, "target"), model_source("--draft", draft, "draft")
    job = HostJob(0, steps, False, temperature=temperature)
    # Room for the drafts of all requests in one step.
    batched = max(_LEAST_BATCHED_TOKENS, max(numbers) * (optimal_tokens + 2))
    origin = provenance(sys.argv[1:], seed, ()) | {"target": source, "draft": draft_source, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        arms = plan_host_arms(arm or ARMS, draft_source, optimal_tokens, folder)
        planned = {name: arm.planned for name, arm in arms.items()}
        options = {"max_num_seqs": max(numbers), "max_num_batched_tokens": batched}
        with (
            running_engines(planned, source, seed, enforce_eager, folder, errors, **options) as engines,
            shown_progress(num_runs(len(arms), len(cells), rounds), errors) as on_run,
        ):
            results = run_all(arms, engines, cells, job, rounds, QuietMachine(patience), on_run)
            origin |= {"arms": describe(planned, engines)}
    if json_path is not None:
        json_path.write_text(json.dumps(to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    if png is not None:
        models = f"{Path(source).name} with {Path(draft_source).name}"
        draw(results, f"Time of a decode step by part\n{models}, {origin['machine']['cpu']}", png)
    if markdown is not None:
        address = picture_address(png, markdown)
        markdown.write_text(to_markdown(results, origin, address), encoding="utf-8")
    shown = []
    for title, (head, *rows) in tables(results):
        table = new_table(title, (name.replace("K = ", "K=").replace(" ", "\n") for name in head), ("part", "arm"))
        for row in rows:
            table.add_row(*map(escape, row))
        shown.append(table)
    show_report(shown, (NOTE,), results.others, console)
