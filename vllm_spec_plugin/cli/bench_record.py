"""`vllm-spec bench record`: records drafts' acceptance and steps' costs for `bench replay`."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.options import Draft, NoiseBudget, Proposer, Rounds, Seed, Target


def bench_record(
    out: Annotated[Path, typer.Argument(metavar="OUT", show_default=False, help="File to write.")],
    proposer: Proposer = None,
    target: Target = None,
    draft: Draft = None,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum draft tokens per request and step.")] = 8,
    requests: Annotated[int, typer.Option(min=1, help="Responses per kind of text.")] = 24,
    output_tokens: Annotated[int, typer.Option(min=16, help="Output tokens per response.")] = 160,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Batch sizes at which steps are timed.")] = (
        "1,2,4,8,16,32"
    ),
    lengths: Annotated[str, typer.Option(metavar="N,...", help="Draft lengths at which steps are timed.")] = "1,2,4,8",
    steps: Annotated[int, typer.Option(min=4, help="Approximate steps per batch size, draft length and round.")] = 16,
    rounds: Rounds = 2,
    outcomes_of: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Reuse the outcomes of this recording, of a target that computes the same."),
    ] = None,
    noise_budget_s: NoiseBudget = 60.0,
    seed: Seed = 0,
) -> None:
    """Record outcomes and costs of a target with a plugin configuration.

    Outcomes: every proposer drafts its longest draft at every output position of the same responses;
    verification counts the accepted tokens. Costs: seconds per step by batch size and draft length, with and
    without the plugin, arms alternating. Keep the machine otherwise idle.
    """
    import dataclasses
    import sys
    import tempfile

    from rich.markup import escape

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.arms import base_of
    from vllm_spec_plugin.tools.bench.engine_args import model_source
    from vllm_spec_plugin.tools.bench.input import whole_numbers
    from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
    from vllm_spec_plugin.tools.bench.prompts import PROMPTS
    from vllm_spec_plugin.tools.bench.replay import record
    from vllm_spec_plugin.tools.bench.replay.recording import Recording, read
    from vllm_spec_plugin.tools.report.output import check_output
    from vllm_spec_plugin.tools.report.provenance import provenance

    errors = new_console(stderr=True)
    check_output("OUT", out)
    known = None if outcomes_of is None else read(outcomes_of)
    numbers = {*whole_numbers("--lengths", lengths, tokens), tokens}
    sizes = record.Sizes(
        requests,
        output_tokens,
        whole_numbers("--levels", levels, 1024),
        tuple(sorted(numbers)),
        steps,
        rounds,
        seed,
    )
    source = model_source("--target", target, "target")
    config = record.fixed(base_of(proposer, draft and model_source("--draft", draft, "draft")).config, tokens)
    origin = provenance(sys.argv[1:], seed, PROMPTS) | {"sizes": dataclasses.asdict(sizes)}

    def on_run(what: str) -> None:
        errors.print(escape(what), soft_wrap=True, highlight=False)

    with (
        tempfile.TemporaryDirectory(prefix="vllm-spec-record-") as name,
        record.running(config, source, seed, Path(name), errors) as arms,
    ):
        if known is None:
            traces = record.record_outcomes(arms.of("plugin"), config, sizes, on_run)
        else:
            traces = known.traces
            origin["outcomes"] = known.provenance
        costs = record.record_costs(arms.of, config, sizes, NoiseGate(noise_budget_s), on_run)
    Recording(record.nameless(config), traces, costs, origin).write(out)
    text = f"{out}: {len(traces)} responses, {out.stat().st_size:,} bytes"
    errors.print(escape(text), soft_wrap=True, highlight=False)
