"""`vllm-spec plan`: whether to switch speculation on for a model and its traffic, and with what."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import EnforceEager, JsonFile, NoiseBudget, Seed

_MOST_TOKENS, _MOST_STREAMS = 64, 256


def plan(
    model: Annotated[str, typer.Option(help="Folder or hub name of the model that is served.", show_default=False)],
    prompts: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            show_default=False,
            help='What it is asked, JSON Lines: {"prompt": ...} or {"messages": [...]}, if wanted with "workload" (a '
            'word that figures are told apart by), "max_tokens" and "temperature". Or a JSON list of texts. '
            "Several times: each file is a workload.",
        ),
    ],
    draft: Annotated[
        str | None, typer.Option(help="Folder or hub name of a draft model to consider.", show_default=False)
    ] = None,
    medusa: Annotated[
        str | None, typer.Option(help="Folder or hub name of Medusa heads to consider.", show_default=False)
    ] = None,
    concurrency: Annotated[
        str, typer.Option(metavar="N,...", help="Requests at once; the answer is for all these, each counting alike.")
    ] = "1,8",
    tokens: Annotated[int, typer.Option(min=1, max=_MOST_TOKENS, help="Longest draft to consider.")] = 8,
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
    patience: NoiseBudget = 60.0,
    seed: Seed = 0,
    enforce_eager: EnforceEager = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write the recommended plugin.yaml here, if any is."),
    ] = None,
    out_anyway: Annotated[
        bool, typer.Option("--out-anyway", help="Also write --out where the answer is to leave it off.")
    ] = False,
    json_path: JsonFile = None,
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
    import sys
    import tempfile

    from rich.console import Console
    from rich.markup import escape

    from vllm_spec_plugin.tools.bench.engine_args import model_source
    from vllm_spec_plugin.tools.bench.input import whole_numbers
    from vllm_spec_plugin.tools.planner import planning
    from vllm_spec_plugin.tools.planner.measuring import Sizes
    from vllm_spec_plugin.tools.planner.models import check_models, read_heads
    from vllm_spec_plugin.tools.planner.prompts import read_given
    from vllm_spec_plugin.tools.planner.report.output import Files, show, write
    from vllm_spec_plugin.tools.planner.texts import as_traffic
    from vllm_spec_plugin.tools.report.output import check_output
    from vllm_spec_plugin.tools.report.provenance import provenance

    console, errors = Console(), Console(stderr=True)
    levels = whole_numbers("--concurrency", concurrency, _MOST_STREAMS)
    for option, path in (("--out", out), ("--json", json_path), ("--markdown", markdown), ("--png", png)):
        check_output(option, path)
    given = read_given(prompts)
    served = model_source("--model", model, "target")
    small = None if draft is None else model_source("--draft", draft, "draft")
    heads = None if medusa is None else read_heads(model_source("--medusa", medusa, "medusa"))
    for warning in check_models(served, small, heads):
        errors.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    sizes = Sizes(tuple(sorted(levels)), rounds, seed)
    wanted = planning.Wanted(served, small, heads, tokens, sizes, verify, enforce_eager)
    traffic = as_traffic(given, served, temperature, output_tokens)
    origin = provenance(sys.argv[1:], seed, [prompt.text for prompt in traffic]) | {"model": served}
    with tempfile.TemporaryDirectory(prefix="vllm-spec-plan-") as folder:
        results = planning.make_plan(wanted, traffic, origin, Path(folder), patience, errors)
    show(results, console)
    write(results, origin, Files(out, out_anyway, json_path, markdown, png), console)
