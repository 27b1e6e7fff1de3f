"""`vllm-spec bench`: compares arms under concurrent streams, or recommends a proposer for a traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.load.workloads import EASY, EQUAL, SWITCHING, WORKLOADS, LoadSizes
from vllm_spec_tools.cli.options import (
    Arms,
    Draft,
    EnforceEager,
    NoiseBudget,
    OneAtATime,
    Proposer,
    ReportFiles,
    Rounds,
    Seed,
    TargetModel,
    grouped,
)

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_spec_tools.bench.load.sweep import SweepPlan
    from vllm_spec_tools.bench.records import LoadRequest
    from vllm_spec_tools.planner.candidates import CandidateEngine

_ARMS = ("none", "optimal", "fixed:1,2,4,8")
_MOST_STREAMS, _MOST_SWITCHING_STREAMS, _MOST_TOKENS, _LEAST_ROUNDS = 1024, 64, 64, 3
_LEVELS, _LEVELS_TO_RECOMMEND = "1,8,32", "1,8"


@dataclass(frozen=True)
class Recommending:
    """Options of `--recommend`."""

    medusa: Annotated[str | None, typer.Option(help="With --recommend: Medusa heads to consider.")] = None
    eagle3: Annotated[str | None, typer.Option(help="With --recommend: an EAGLE-3 head to consider.")] = None
    tokens: Annotated[
        int, typer.Option(min=1, max=_MOST_TOKENS, help="With --recommend: maximum draft length (K) to consider.")
    ] = 8
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --recommend: write the recommended plugin.yaml, if there is one."),
    ] = None
    out_anyway: Annotated[
        bool, typer.Option("--out-anyway", help="Write --out even if the recommendation is not to speculate.")
    ] = False


@grouped
def bench(
    context: typer.Context,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend",
            help="Recommend whether to speculate for the requests of --prompts, and with which proposer: suffixes; "
            "predictions and grammars if prompts have predictions or schemas; and those of --draft, --medusa, "
            "--eagle3 and --arm vllm:JSON.",
        ),
    ] = False,
    arm: Arms = None,
    proposer: Proposer = None,
    model: TargetModel = None,
    draft: Draft = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "--category",
            metavar="|".join(WORKLOADS),
            help="Workload; repeatable. easy: predictable text; hard: unpredictable text; mixed: both at once; "
            "switching: all streams alternate between them; equal: requests of equal length, all at once, in a first "
            "pass and warm ones, with --one-at-a-time; json: built-in prompts with JSON schemas; or a category of "
            "--prompts, whose requests keep their own max_tokens, temperature, prediction and schema. [default: all "
            "categories of --prompts, else easy]",
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help=f"Numbers of concurrent streams. [default: {_LEVELS}; with --recommend {_LEVELS_TO_RECOMMEND}]",
        ),
    ] = None,
    switching_levels: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of concurrent streams of the workload switching.")
    ] = "1,4",
    rounds: Rounds = 7,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Prompts, as JSON Lines or a JSON array: Spec-Bench, MT-bench (all turns, each after the model's own "
            'answer), HumanEval, GSM8K, ShareGPT, {"prompt": ...} or {"messages": [...]}, optionally with "category", '
            '"schema", "prediction", "max_tokens" and "temperature". Repeatable: each file is a category, unless its '
            "rows name others. [default: beginnings of Python files]",
        ),
    ] = None,
    per_category: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Send N prompts of each category of --prompts, drawn by --seed. [default: all]"
        ),
    ] = None,
    prompt_temperature: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Temperature of requests of --prompts that give none.")
    ] = 0.0,
    noise_budget_s: NoiseBudget = 120.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    one_at_a_time: OneAtATime = False,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write each run to FILE as it ends, and do not repeat those that it has: after an interrupt the same "
            "command goes on. Not with --recommend.",
        ),
    ] = None,
    *,
    sizes: LoadSizes,
    recommending: Recommending,
    files: ReportFiles,
) -> None:
    """Compare speculation with no speculation: tokens per second, latency, and equality of greedy outputs.

    Closed loop: each level keeps N requests in flight. Each arm is an engine in its own process; within each
    round the arms run alternately. Without --arm they are none, optimal and fixed:1,2,4,8, which draft greedily
    with the draft model. Keep the machine otherwise idle. After an interrupt the finished rounds are reported.

    With --recommend, it measures proposers on the requests of --prompts, two engines at once, predicts their speedups,
    compares the best one with no speculation, and recommends one, or none.

    vLLM's own engine options follow after `--`: `vllm-spec bench --model M -- --dtype bfloat16
    --tensor-parallel-size 2`.
    """
    import functools
    import sys
    import tempfile
    from dataclasses import asdict, replace

    from rich.text import Text

    from vllm_spec_tools.bench.arms import base_of, describe, plan_arms, running_engines
    from vllm_spec_tools.bench.load import report as load_report
    from vllm_spec_tools.bench.load import sweep
    from vllm_spec_tools.bench.load.given import Choice, context_of, file_notes, given_requests
    from vllm_spec_tools.bench.load.workloads import BEGINNINGS, longest
    from vllm_spec_tools.bench.noise_gate import NoiseGate
    from vllm_spec_tools.bench.run_file import RunFile
    from vllm_spec_tools.cli.errors import new_console, write_or_fail
    from vllm_spec_tools.engines.engine_options import SET_BY_COMMAND, engine_options, whole_numbers
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.planner import report as planner_report
    from vllm_spec_tools.planner.planning import Recommender, write_plugin_yaml
    from vllm_spec_tools.progress import shown_runs
    from vllm_spec_tools.report.output import check_output
    from vllm_spec_tools.report.provenance import provenance

    errors = new_console(stderr=True)
    own = {"model": "use --model", "speculative_config": "use --arm", "seed": "use --seed"}
    own |= {"enable_prefix_caching": SET_BY_COMMAND} if recommend else {}
    options = engine_options(context.args, own, enforce_eager=enforce_eager)
    if not recommend and recommending != Recommending():
        hint = "; numbers of output tokens are --request-tokens and --stream-tokens"
        raise UserError(f"--medusa, --eagle3, --tokens, --out, --out-anyway: allowed: with --recommend{hint}")
    if recommend and (not prompts or workload or proposer or rounds < _LEAST_ROUNDS):
        allowed = f"with --prompts and {_LEAST_ROUNDS} --rounds at least, without --workload and --proposer"
        raise UserError(f"--recommend: allowed: {allowed}")
    if recommend and runs:
        raise UserError("--runs: allowed: without --recommend")
    check_output("--out", recommending.out)
    steady = whole_numbers("--levels", levels or (_LEVELS_TO_RECOMMEND if recommend else _LEVELS), _MOST_STREAMS)
    turning = whole_numbers("--switching-levels", switching_levels, _MOST_SWITCHING_STREAMS)
    source = model_source("--model", model, "target")
    if per_category is not None and not prompts:
        raise UserError("--per-category: allowed: with --prompts")
    choice = Choice(
        prompt_temperature,
        sizes.request_tokens if recommend else longest(sizes),
        may_end=not recommend,
        context=context_of(source, options.get("max_model_len")) if prompts else None,
        per_category=per_category,
        seed=seed,
    )
    asked, records = given_requests(prompts or (), workload or (), source, choice)
    said = list(file_notes(records, choice.context))
    for text in said:
        errors.print(Text(text), soft_wrap=True)
    draft = draft and model_source("--draft", draft, "draft")
    work: Any
    with tempfile.TemporaryDirectory(prefix="vllm-spec-bench-") as name:
        folder = Path(name)
        if recommend:
            # A prompt that comes twice is a second one.
            options |= {"enable_prefix_caching": False}
            candidates = _candidates(recommending, source, draft, arm or (), asked, errors)
            gate = functools.partial(NoiseGate, noise_budget_s / 2)
            work = Recommender(candidates, asked, sorted(steady), rounds, seed, folder, gate, one_at_a_time)
        else:
            plan = _sweep_plan(workload or (), asked, steady, turning, sizes, rounds, seed)
            if any(name == EQUAL for name, _ in plan.cells) and not one_at_a_time:
                raise UserError("--workload equal: each first pass needs a new process; allowed: with --one-at-a-time")
            arms = plan_arms(arm or _ARMS, base_of(proposer, draft), folder)
            speculation = {name: arm.plan.settings or arm.plan.speculative_config for name, arm in arms.items()}
            subject = {"model": source, "arms": speculation, "load": plan, "options": options, "eager": enforce_eager}
            file = None if runs is None else RunFile(runs, subject)
            work = sweep.Sweep(arms, plan, functools.partial(NoiseGate, noise_budget_s), one_at_a_time, file)
        drafts = dict.fromkeys(draft for one in work.arms.values() for draft in one.plan.draft_models)
        models = {"target": source} | {f"draft {i}" if i > 1 else "draft": draft for i, draft in enumerate(drafts, 1)}
        texts = [request.prompt for request in asked] or BEGINNINGS
        origin = provenance(sys.argv[1:], seed, texts, models) | {"sizes": asdict(sizes)}
        origin["prompts"] |= {"files": records}
        with (
            running_engines(
                work.arms, source, seed, enforce_eager, folder, errors, options,
                one_at_a_time=one_at_a_time, in_pairs=recommend,
            ) as engines,
            shown_runs(work.total, errors) as shown,
        ):  # fmt: skip
            results = work.run(engines, shown.on_run, origin)
            origin |= {"rounds": results.rounds, "arms": describe(work.arms, engines)}
    report = (planner_report if recommend else load_report).report_of(results, origin, rounds)
    write_or_fail(replace(report, notes=[*said, *report.notes]), files)
    if recommend and recommending.out is not None:
        done = write_plugin_yaml(results, origin, recommending.out, anyway=recommending.out_anyway)
        new_console().print(Text(f"\n{done}"), soft_wrap=True)


def _sweep_plan(
    workload: Sequence[str],
    asked: "Sequence[LoadRequest]",
    steady: Sequence[int],
    turning: Sequence[int],
    sizes: LoadSizes,
    rounds: int,
    seed: int,
) -> "SweepPlan":
    """Returns the load of a comparison: of the workloads wanted, else of all in the prompts, else `easy`."""
    from vllm_spec_tools.bench.load.sweep import SweepPlan
    from vllm_spec_tools.bench.load.workloads import BEGINNINGS

    kinds = dict.fromkeys(request.kind for request in asked)
    own = {kind: tuple(request for request in asked if request.kind == kind) for kind in kinds}
    workloads = dict.fromkeys(workload or list(own) or [EASY])
    cells = tuple((name, level) for name in workloads for level in (turning if name == SWITCHING else steady))
    texts = tuple(request.prompt for request in asked) or BEGINNINGS
    return SweepPlan(cells, texts, sizes, rounds, seed, own)


def _candidates(
    given: Recommending,
    source: str,
    draft: str | None,
    words: Sequence[str],
    asked: "Sequence[LoadRequest]",
    errors: "Console",
) -> "tuple[CandidateEngine, ...]":
    """Returns what `--recommend` considers, after a check that it goes with the target."""
    from rich.text import Text

    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.engines.serve_options import use_cache_if_offline
    from vllm_spec_tools.planner.candidates import candidate_engines, check_models, read_natives

    natives, models = read_natives(words), {"draft": draft}
    for role in ("medusa", "eagle3"):
        name = getattr(given, role)
        models[role] = name and model_source(f"--{role}", name, role)
    if not all(Path(name).is_dir() for name in (source, *models.values()) if name):
        use_cache_if_offline()
    for warning in check_models(source, **models):
        errors.print(Text.assemble(("warning: ", "yellow"), warning), soft_wrap=True)
    return candidate_engines(
        given.tokens,
        natives=natives,
        draft=draft,
        medusa=models["medusa"],
        eagle3=models["eagle3"],
        has_predictions=any(request.prediction for request in asked),
        has_schemas=any(request.schema for request in asked),
    )
