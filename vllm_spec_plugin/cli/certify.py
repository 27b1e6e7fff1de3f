"""`vllm-spec certify`: whether a model's outputs with the plugin are exact on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer


def certify(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Folder or hub name of the model that is served.", show_default=False)],
    config: Annotated[Path, typer.Option(metavar="FILE", help="The plugin.yaml to certify.", show_default=False)],
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Your prompts, JSON Lines: {"prompt": ...} or a text per line. [default: texts that repeat '
            "themselves, code, random tokens]",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer settings and samples, models not compiled: a first look.")
    ] = False,
    false_alarm: Annotated[
        float, typer.Option(min=1e-9, max=0.1, help="Probability that exact outputs are called not exact, in all.")
    ] = 1e-3,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Greedy outputs may differ where the two highest logits are closer than this. [default: float32 "
            "0.0001, float16 0.03, bfloat16 0.25]",
        ),
    ] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the report here, as JSON.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the p-values into this file.")] = None,
) -> None:
    """Tell whether a model's outputs with a plugin.yaml are exact, on this machine.

    Runs the model without and with the plugin, as configured and with a fixed draft length, and compares: greedy
    outputs; sampled ones by always-valid tests; requests with seeds alone and in a crowd; preempted ones; JSON.

    Exit status: 0 exact, 1 not exact, 2 it could not be told (bad input, refused, too few drafts).

    vLLM's own options follow after `--`: `vllm-spec certify --model M --config plugin.yaml -- --dtype bfloat16
    --tensor-parallel-size 2`.
    """
    import sys
    import tempfile

    from rich.console import Console

    from vllm_spec_plugin.cli.certify_progress import shown
    from vllm_spec_plugin.config import load_config
    from vllm_spec_plugin.tools.bench.engine_args import model_source
    from vllm_spec_plugin.tools.certify import prompts as texts
    from vllm_spec_plugin.tools.certify.baseline import DEFAULT, QUICK
    from vllm_spec_plugin.tools.certify.options import context_of, engine_options
    from vllm_spec_plugin.tools.certify.session import Certification
    from vllm_spec_plugin.tools.certify.session import certify as run
    from vllm_spec_plugin.tools.report.output import check_output
    from vllm_spec_plugin.tools.report.provenance import provenance

    # A pipe has no width of its own, and a cut table says little.
    console = Console(width=None if sys.stdout.isatty() else 170)
    for option, path in (("--json", json_path), ("--png", png)):
        check_output(option, path)
    # A mistake in the file is told before a model is looked for.
    load_config(config)
    options = engine_options(context.args)
    given = None if prompts is None else texts.read_prompts(prompts)
    source = model_source("--model", model, "target")
    plan = Certification(
        source,
        config,
        context_of(source),
        options,
        given,
        QUICK if quick else DEFAULT,
        false_alarm,
        tolerance,
        enforce_eager or quick,
    )
    origin = provenance(sys.argv[1:], 0, given or texts.built_in())
    with tempfile.TemporaryDirectory(prefix="vllm-spec-certify-") as folder, shown(console) as say:
        report = run(plan, Path(folder), origin, say)
    finish(report, model, json_path, png, console)


def finish(report: Any, model: str, json_path: Path | None, png: Path | None, console: Any) -> None:
    """Shows and writes a report.

    Raises:
        Exit: with the report's exit status.
    """
    import json

    from vllm_spec_plugin.tools.certify.picture import draw
    from vllm_spec_plugin.tools.certify.report import as_json, show

    show(report, console)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(report), indent=2) + "\n")
    if png is not None:
        draw(report, model, png)
    raise typer.Exit(report.exit_status)
