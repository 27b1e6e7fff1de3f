"""`vllm-spec certify`: tests whether a model's outputs with the plugin are exact on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_tools.cli.options import EnforceEager, Model, ReportPages, grouped


@grouped
def certify(
    context: typer.Context,
    model: Model,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The plugin.yaml to certify, or vLLM's own --speculative-config JSON.",
            show_default=False,
        ),
    ],
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prompts: JSON Lines or a JSON list of texts, chats or ShareGPT conversations. [default: repetitive "
            "text, code, random tokens]",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Test fewer settings with fewer samples, without compiling models.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=1440,
            help="Minutes for the sampled outputs of each engine; more find smaller faults. [default: 7, --quick 2]",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the outputs without speculation in this file, for other configurations of the same model; if it "
            "exists, read them from it. Only read files that you wrote.",
        ),
    ] = None,
    false_alarm: Annotated[
        float, typer.Option(min=1e-9, max=0.1, help="Probability, in all, of calling exact outputs not exact.")
    ] = 1e-3,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Difference of the two highest logits below which greedy outputs may differ. [default: float32 "
            "0.0001, float16 0.03, bfloat16 0.25]",
        ),
    ] = None,
    enforce_eager: EnforceEager = False,
    *,
    files: ReportPages,
) -> None:
    """Test whether a model's outputs with speculation, the plugin's or vLLM's own, are exact on this machine.

    Runs the model without and with the plugin, as configured and with random draft lengths. Compares greedy outputs;
    sampled outputs, by always-valid tests; seeded requests, alone and in a batch; preempted requests; JSON outputs.

    Exit status: 0 exact, 1 not exact, 2 undecided (wrong input, model refused, too few drafts), 3 exact with random
    draft lengths, but too few drafts as configured.

    vLLM's own options follow after `--`: `vllm-spec certify --model M --config plugin.yaml -- --dtype bfloat16
    --tensor-parallel-size 2`.
    """
    import sys
    import tempfile

    from vllm_spec_plugin.config import load_config
    from vllm_spec_tools.certify import prompts as texts
    from vllm_spec_tools.certify.baseline import DEFAULT, QUICK
    from vllm_spec_tools.certify.report import report_of
    from vllm_spec_tools.certify.session import Certification
    from vllm_spec_tools.certify.session import certify as run
    from vllm_spec_tools.cli.errors import new_console
    from vllm_spec_tools.engines.engine_options import SET_BY_COMMAND, STOCK_EXAMPLE, engine_options, speculative_json
    from vllm_spec_tools.engines.memory import context_of
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.progress import shown_engines
    from vllm_spec_tools.prompts import read_texts
    from vllm_spec_tools.report import write
    from vllm_spec_tools.report.output import check_output
    from vllm_spec_tools.report.provenance import provenance
    from vllm_spec_tools.vllm_json import check_native

    console = new_console()
    check_output("--baseline", baseline)
    # Mistakes in the file are reported before a model is looked for.
    subject: Path | str = config.strip() if config.lstrip().startswith("{") else Path(config)
    if isinstance(subject, str):
        speculative_json("--config", subject, STOCK_EXAMPLE, needs_tokens=True)
    else:
        check_native(load_config(subject), str(subject))
    own = {"model": "use --model", "speculative_config": "use --config", "seed": SET_BY_COMMAND}
    options = engine_options(context.args, own, enforce_eager=enforce_eager)
    source = model_source("--model", model, "target")
    given = None if prompts is None else list(read_texts(prompts, source))
    sizes = QUICK if quick else DEFAULT
    plan = Certification(
        source,
        subject,
        context_of(source),
        options,
        given,
        sizes if minutes is None else sizes.lasting(minutes),
        false_alarm,
        tolerance,
        enforce_eager or quick,
        baseline,
    )
    origin = provenance(sys.argv[1:], 0, given or texts.built_in(), {"target": source})
    with tempfile.TemporaryDirectory(prefix="vllm-spec-certify-") as folder, shown_engines(console) as say:
        found = run(plan, Path(folder), origin, say)
    write(report_of(found), terminal=console, **vars(files))
    raise typer.Exit(found.exit_status)
