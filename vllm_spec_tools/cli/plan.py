"""`vllm-spec plan`: recommends whether to use speculation for a model and its traffic, and with which proposer."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_tools.cli.options import EnforceEager, Model, NoiseBudget, OneAtATime, ReportFiles, Seed, grouped

_MOST_TOKENS, _MOST_STREAMS = 64, 256


@grouped
def plan(
    context: typer.Context,
    model: Model,
    prompts: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            show_default=False,
            help='Prompts of the traffic: JSON Lines or a JSON list of texts, {"prompt": ...}, {"messages": [...]} or '
            'ShareGPT conversations, optionally with "workload" (a name to group figures by), "schema", "max_tokens" '
            'and "temperature". Repeatable: each file is a workload.',
        ),
    ],
    draft: Annotated[
        str | None, typer.Option(help="Folder or hub name of a draft model to consider.", show_default=False)
    ] = None,
    medusa: Annotated[
        str | None, typer.Option(help="Folder or hub name of Medusa heads to consider.", show_default=False)
    ] = None,
    eagle3: Annotated[
        str | None, typer.Option(help="Folder or hub name of an EAGLE-3 head to consider.", show_default=False)
    ] = None,
    vllm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            show_default=False,
            help="One of vLLM's own drafters to consider, as its --speculative-config has it, without "
            """num_speculative_tokens: {"method": "eagle3", "model": "HEAD"}. Repeatable.""",
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of concurrent requests, weighted equally.")
    ] = "1,8",
    tokens: Annotated[
        int, typer.Option(min=1, max=_MOST_TOKENS, help="Maximum draft length to consider, in tokens.")
    ] = 8,
    output_tokens: Annotated[
        int, typer.Option(min=8, help="Maximum output tokens per request; a prompt's own max_tokens applies if lower.")
    ] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="Temperature of prompts that give none.")] = 0.0,
    rounds: Annotated[
        int, typer.Option(min=3, help="Rounds of the final comparison, which alternates; more find smaller gains.")
    ] = 5,
    noise_budget: NoiseBudget = 60.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    one_at_a_time: OneAtATime = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write the recommended plugin.yaml to this file, if there is one."
        ),
    ] = None,
    out_anyway: Annotated[
        bool, typer.Option("--out-anyway", help="Write --out even if the recommendation is not to speculate.")
    ] = False,
    *,
    files: ReportFiles,
) -> None:
    """Recommend whether to use speculation for a model and its traffic, with which proposer, and predict the speedup.

    Measures on this machine the time of steps, drafts and prefill, and the acceptance of drafts. Predicts every
    proposer's speedup, runs the best one against no speculation, and recommends. Suffixes are always considered,
    predictions and grammars if prompts have predictions or schemas, a draft model, Medusa heads, an EAGLE-3 head and
    vLLM's own drafters if given.
    At most two engines run at once. Keep the machine otherwise idle.

    vLLM's own engine options follow after `--`: `vllm-spec plan --model M --prompts FILE -- --dtype bfloat16
    --tensor-parallel-size 2`.
    """
    import sys
    import tempfile

    from rich.markup import escape

    from vllm_spec_tools.bench.load.workloads import requests_of
    from vllm_spec_tools.cli.errors import new_console, write_or_fail
    from vllm_spec_tools.engines.engine_options import SET_BY_COMMAND, engine_options, whole_numbers
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.engines.serve_options import use_cache_if_offline
    from vllm_spec_tools.planner import planning
    from vllm_spec_tools.planner.candidates import native_name
    from vllm_spec_tools.planner.measuring import MeasurementSizes
    from vllm_spec_tools.planner.models import check_models, read_heads, read_natives
    from vllm_spec_tools.planner.report import report_of
    from vllm_spec_tools.planner.results import write_plugin_yaml
    from vllm_spec_tools.prompts import read_prompts
    from vllm_spec_tools.report.output import check_output
    from vllm_spec_tools.report.provenance import provenance

    errors = new_console(stderr=True)
    levels = whole_numbers("--concurrency", concurrency, _MOST_STREAMS)
    check_output("--out", out)
    own = {"model": "use --model", "speculative_config": SET_BY_COMMAND, "seed": "use --seed"}
    own |= {"enable_prefix_caching": SET_BY_COMMAND}
    options = engine_options(context.args, own, enforce_eager=enforce_eager)
    given = read_prompts(prompts)
    served = model_source("--model", model, "target")
    if not all(Path(name).is_dir() for name in (served, draft, medusa, eagle3) if name):
        use_cache_if_offline()
    small = None if draft is None else model_source("--draft", draft, "draft")
    heads = None if medusa is None else read_heads(model_source("--medusa", medusa, "medusa"))
    head = None if eagle3 is None else model_source("--eagle3", eagle3, "eagle3")
    natives = read_natives(vllm or ())
    for warning in check_models(served, small, heads, head):
        errors.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    sizes = MeasurementSizes(tuple(sorted(levels)), rounds, seed, one_at_a_time)
    wanted = planning.Wanted(served, small, heads, tokens, sizes, enforce_eager, head, natives, options)
    traffic = requests_of(given, served, temperature, output_tokens, may_end=False)
    roles = {"target": served, "draft": small, "medusa": medusa, "eagle3": head}
    roles |= {native_name(config): config.get("model") for config in natives}
    models = {role: name for role, name in roles.items() if name}
    origin = provenance(sys.argv[1:], seed, [one.prompt for one in traffic], models) | {"model": served}
    with tempfile.TemporaryDirectory(prefix="vllm-spec-plan-") as folder:
        results = planning.make_plan(wanted, traffic, origin, Path(folder), noise_budget, errors)
    write_or_fail(report_of(results, origin), files)
    if out is not None:
        done = write_plugin_yaml(results, origin, out, anyway=out_anyway)
        new_console().print(f"\n{escape(done)}", soft_wrap=True, highlight=False)
