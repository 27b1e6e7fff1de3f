"""`vllm-spec bench host`: times a step's host work, outside the models, by part."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.options import (
    Draft,
    EnforceEager,
    NoiseBudget,
    OptimalTokens,
    ReportFiles,
    Rounds,
    Seed,
    Target,
    grouped,
)

_MOST_REQUESTS, _LEAST_BATCHED_TOKENS = 1024, 2048
_TARGETS = {"constant": False, "computed": True}


@grouped
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
    noise_budget_s: NoiseBudget = 0.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    *,
    files: ReportFiles,
) -> None:
    """Time the parts of decode steps: the plugin, stock vLLM, and no speculation.

    All requests are in the middle of their scripted output. Each arm is an engine in its own process; the arms run
    alternately. CPU times are robust on a busy machine, wall times are not. Use one thread:
    `OMP_NUM_THREADS=1 taskset -c 0 vllm-spec bench host`.
    """
    import sys
    import tempfile

    from vllm_spec_plugin.cli.console import new_console, write_or_fail
    from vllm_spec_plugin.tools.bench.engine_args import model_source
    from vllm_spec_plugin.tools.bench.host.comparison import ARMS, plan_host_arms, run_all
    from vllm_spec_plugin.tools.bench.host.records import HostJob
    from vllm_spec_plugin.tools.bench.host.report import report_of
    from vllm_spec_plugin.tools.bench.input import whole_numbers, words
    from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
    from vllm_spec_plugin.tools.bench.rounds import num_runs
    from vllm_spec_plugin.tools.bench.running import describe, running_engines
    from vllm_spec_plugin.tools.progress import shown_progress
    from vllm_spec_plugin.tools.report.provenance import provenance

    errors = new_console(stderr=True)
    numbers = whole_numbers("--levels", levels, _MOST_REQUESTS)
    targets = [_TARGETS[word] for word in words("--forward", forward or list(_TARGETS), list(_TARGETS))]
    cells = [(is_computed, num_requests) for is_computed in targets for num_requests in numbers]
    source, draft_source = model_source("--target", target, "target"), model_source("--draft", draft, "draft")
    job = HostJob(0, steps, False, temperature=temperature)
    # Room for the drafts of all requests in one step.
    batched = max(_LEAST_BATCHED_TOKENS, max(numbers) * (optimal_tokens + 2))
    origin = provenance(sys.argv[1:], seed, (), {"target": source, "draft": draft_source})
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        arms = plan_host_arms(arm or ARMS, draft_source, optimal_tokens, folder)
        options = {"max_num_seqs": max(numbers), "max_num_batched_tokens": batched}
        with (
            running_engines(arms, source, seed, enforce_eager, folder, errors, options) as engines,
            shown_progress(num_runs(len(arms), len(cells), rounds), errors) as on_run,
        ):
            results = run_all(arms, engines.of, cells, job, rounds, NoiseGate(noise_budget_s), on_run)
            origin |= {"rounds": results.rounds, "arms": describe(arms, engines)}
    report = report_of(results, origin, rounds)
    write_or_fail(report, files)
