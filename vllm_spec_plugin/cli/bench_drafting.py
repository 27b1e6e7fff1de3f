"""`vllm-spec bench drafting`: times drafting next to stock vLLM's, and derives the limit of the speedup."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import (
    Arms,
    CsvFile,
    Draft,
    EnforceEager,
    HtmlFile,
    JsonFile,
    MarkdownFile,
    NoiseBudget,
    OptimalTokens,
    PngFile,
    Prompts,
    Proposer,
    Rounds,
    Seed,
    Target,
)
from vllm_spec_plugin.schema.errors import UserError

_ARMS = ("none", "stock:draft_model", "fixed:4")


def bench_drafting(
    arm: Arms = None,
    proposer: Proposer = None,
    optimal_tokens: OptimalTokens = 8,
    target: Target = None,
    draft: Draft = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; repeatable. [default: 1, 8]")] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(min=0.0, max=10.0, help="Temperature of all requests; repeatable. [default: 0, 1]"),
    ] = None,
    output_tokens: Annotated[int, typer.Option(min=2, help="Output tokens per request.")] = 128,
    rounds: Rounds = 7,
    prompts: Prompts = None,
    noise_budget_s: NoiseBudget = 120.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    profile: Annotated[bool, typer.Option("--profile", help="Add rounds that time the parts of drafting.")] = False,
    json_file: JsonFile = None,
    csv: CsvFile = None,
    markdown: MarkdownFile = None,
    png: PngFile = None,
    html: HtmlFile = None,
) -> None:
    """Time draft steps and verification, and derive the limit of the speedup.

    Batches of requests run to their end; only steps in which every request has drafts are timed. Without --arm
    the arms are none, stock:draft_model and fixed:4, which samples its drafts from the draft model. Keep the
    machine otherwise idle: other processes distort the arms unequally.
    """
    import sys
    import tempfile
    from pathlib import Path

    from vllm_spec_plugin.cli.console import new_console, write_or_fail
    from vllm_spec_plugin.tools.bench.arm_spec import choose_arms
    from vllm_spec_plugin.tools.bench.arms import base_of, plan_arms
    from vllm_spec_plugin.tools.bench.drafting.comparison import Workload, run_all
    from vllm_spec_plugin.tools.bench.drafting.report import report_of
    from vllm_spec_plugin.tools.bench.engine_args import model_source
    from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
    from vllm_spec_plugin.tools.bench.prompts import PROMPTS
    from vllm_spec_plugin.tools.bench.rounds import num_runs
    from vllm_spec_plugin.tools.bench.running import describe, running_engines
    from vllm_spec_plugin.tools.progress import shown_progress
    from vllm_spec_plugin.tools.prompts import read_texts
    from vllm_spec_plugin.tools.report import Files, check_files
    from vllm_spec_plugin.tools.report.provenance import provenance
    from vllm_spec_plugin.tools.serving import runs_on_cpu

    errors = new_console(stderr=True)
    files = Files(markdown, json_file, csv, png, html)
    check_files(files)
    source = model_source("--target", target, "target")
    texts = PROMPTS if prompts is None else read_texts(prompts, source)
    batches, temperatures = dict.fromkeys(batch or (1, 8)), dict.fromkeys(temperature or (0.0, 1.0))
    if max(batches) > len(texts):
        raise UserError(
            f"--batch {max(batches)}: needs as many prompts, got {len(texts)}; allowed: smaller batches, or --prompts "
            "with more texts"
        )
    workload = Workload(texts, tuple(batches), tuple(temperatures), output_tokens, rounds, seed, profile)
    choices = choose_arms(arm or _ARMS, min_fixed=1)
    base = base_of(proposer, draft and model_source("--draft", draft, "draft"), "probabilistic")
    origin = provenance(sys.argv[1:], seed, texts, {"target": source} | base.models)
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        # All requests of a batch have their engine's K.
        arms = plan_arms(choices, base, optimal_tokens, folder, may_share=False)
        with (
            running_engines(arms, source, seed, enforce_eager, folder, errors) as engines,
            shown_progress(num_runs(len(arms), len(workload.cells), workload.all_rounds), errors) as on_run,
        ):
            results = run_all(arms, engines, workload, NoiseGate(noise_budget_s), on_run)
            origin |= {"rounds": results.rounds, "arms": describe(arms, engines)}
    report = report_of(results, origin, rounds, runs_on_cpu())
    write_or_fail(report, files)
