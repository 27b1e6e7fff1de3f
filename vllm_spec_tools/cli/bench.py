"""`vllm-spec bench`: compares arms under concurrent streams."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.load.workloads import EASY, EQUAL, SWITCHING, WORKLOADS, LoadSizes
from vllm_spec_tools.cli.options import (
    Arms,
    Draft,
    EnforceEager,
    NoiseBudget,
    OneAtATime,
    Prompts,
    Proposer,
    ReportFiles,
    Rounds,
    Seed,
    TargetModel,
    grouped,
)

_ARMS = ("none", "optimal", "fixed:1,2,4,8")
_MOST_STREAMS, _MOST_SWITCHING_STREAMS = 1024, 64


@grouped
def bench(
    context: typer.Context,
    arm: Arms = None,
    proposer: Proposer = None,
    model: TargetModel = None,
    draft: Draft = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(WORKLOADS),
            help="Workload; repeatable. easy: predictable text; hard: unpredictable text; mixed: both at once; "
            "switching: all streams alternate between them; equal: requests of equal length, all at once, in a first "
            "pass and warm ones, with --one-at-a-time; json: built-in prompts with JSON schemas; or one that --prompts "
            "names, whose requests keep their own max_tokens, temperature, prediction and schema. [default: the "
            "workloads in --prompts, else easy]",
        ),
    ] = None,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Numbers of concurrent streams.")] = "1,8,32",
    switching_levels: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of concurrent streams of the workload switching.")
    ] = "1,4",
    rounds: Rounds = 7,
    prompts: Prompts = None,
    noise_budget_s: NoiseBudget = 120.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    one_at_a_time: OneAtATime = False,
    *,
    sizes: LoadSizes,
    files: ReportFiles,
) -> None:
    """Compare speculation with no speculation: tokens per second, latency, and equality of greedy outputs.

    Closed loop: each level keeps N requests in flight. Each arm is an engine in its own process; within each
    round the arms run alternately. Without --arm they are none, optimal and fixed:1,2,4,8, which draft greedily
    with the draft model. Keep the machine otherwise idle. After an interrupt the finished rounds are reported.

    vLLM's own engine options follow after `--`: `vllm-spec bench --model M -- --dtype bfloat16
    --tensor-parallel-size 2`.
    """
    from vllm_spec_tools.cli.errors import new_console, write_or_fail

    errors = new_console(stderr=True)
    import sys
    import tempfile
    from dataclasses import asdict

    from vllm_spec_tools.bench.arms import base_of, describe, plan_arms, running_engines
    from vllm_spec_tools.bench.load.report import report_of
    from vllm_spec_tools.bench.load.sweep import SweepPlan, run_sweep
    from vllm_spec_tools.bench.load.workloads import BEGINNINGS, longest, requests_of
    from vllm_spec_tools.bench.noise_gate import NoiseGate
    from vllm_spec_tools.bench.rounds import num_runs
    from vllm_spec_tools.engines.engine_options import engine_options, whole_numbers, words
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.progress import shown_runs
    from vllm_spec_tools.prompts import ALL, read_prompts
    from vllm_spec_tools.report.provenance import provenance

    own = {"model": "use --model", "speculative_config": "use --arm", "seed": "use --seed"}
    options = engine_options(context.args, own, enforce_eager=enforce_eager)
    source = model_source("--model", model, "target")
    given = () if prompts is None else read_prompts([prompts])
    asked = requests_of(given, source, 0.0, longest(sizes), may_end=True)
    texts = tuple(request.prompt for request in asked) or BEGINNINGS
    kinds = dict.fromkeys(request.kind for request in asked if request.kind != ALL)
    own_requests = {kind: tuple(request for request in asked if request.kind == kind) for kind in kinds}
    workloads = words("--workload", workload or list(own_requests) or [EASY], (*WORKLOADS, *own_requests))
    if EQUAL in workloads and not one_at_a_time:
        raise UserError("--workload equal: each first pass needs a new process; allowed: with --one-at-a-time")
    steady = whole_numbers("--levels", levels, _MOST_STREAMS)
    turning = whole_numbers("--switching-levels", switching_levels, _MOST_SWITCHING_STREAMS)
    cells = tuple((name, level) for name in workloads for level in (turning if name == SWITCHING else steady))
    plan = SweepPlan(cells, texts, sizes, rounds, seed, own_requests)
    base = base_of(proposer, draft and model_source("--draft", draft, "draft"))
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        arms = plan_arms(arm or _ARMS, base, folder)
        drafts = dict.fromkeys(draft for one in arms.values() for draft in one.plan.draft_models)
        models = {"target": source} | {f"draft {i}" if i > 1 else "draft": draft for i, draft in enumerate(drafts, 1)}
        origin = provenance(sys.argv[1:], seed, texts, models) | {"sizes": asdict(sizes)}
        with (
            running_engines(
                arms, source, seed, enforce_eager, folder, errors, options, one_at_a_time=one_at_a_time
            ) as engines,
            shown_runs(1 + num_runs(len(arms), len(cells), rounds, one_at_a_time=one_at_a_time), errors) as runs,
        ):
            gate = NoiseGate(noise_budget_s)
            results = run_sweep(arms, engines, plan, gate, runs.on_run, one_at_a_time=one_at_a_time)
            origin |= {"rounds": results.rounds, "arms": describe(arms, engines)}
    report = report_of(results, origin, rounds)
    write_or_fail(report, files)
