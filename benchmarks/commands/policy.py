"""`python -m benchmarks policy`: times `policy: optimal` in the scheduler, per step."""

from typing import Annotated

import typer

from vllm_spec_tools.cli.options import ReportFiles, grouped

_REQUESTS = (1, 4, 16, 64)


@grouped
def policy(
    requests: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests per step; repeatable. [default: 1, 4, 16, 64]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum draft tokens per request and step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps per round.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; figures are their medians.")] = 9,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drafts' acceptance.")] = 0,
    *,
    files: ReportFiles,
) -> None:
    """Time the policy that chooses draft lengths by measured acceptance and cost, per step of all requests.

    Measures CPU time of one thread, without models or a server. A draft token is accepted with probability 0.7 if
    all before it were. Keep the machine otherwise idle: other processes raise every figure.
    """
    import sys

    from benchmarks.policy_cost import ACCEPTANCE, CASES, PARTS, config_of, measure
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.report import Chart, Line, Measurements, Report, Table
    from vllm_spec_tools.report import show_spread as show
    from vllm_spec_tools.report.provenance import provenance

    levels = sorted(set(requests or _REQUESTS))
    measured, workload, conclusion, tables, lines = Measurements(), "acceptance 0.7", [], [], []
    for case in CASES:
        config = config_of(case, tokens)
        arm = case
        for level in levels:
            for number, cost in enumerate(measure(config, level, steps, rounds, seed)):
                measured.add(arm, workload, level, number, cost)
        rows = [
            [
                str(level),
                *(show(measured.spread(arm, workload, level, part), 1e6, 1) for part in (*PARTS, "total")),
                show(measured.spread(arm, workload, level, "draft_length"), 1, 1),
            ]
            for level in levels
        ]
        tables.append(Table(f"{arm}: µs per step, K = {tokens}", ["requests", *PARTS, "total", "drafted"], rows))
        totals = {level: measured.median(arm, workload, level, "total") or 0.0 for level in levels}
        lines.append(Line(arm, {level: 1e6 * total for level, total in totals.items()}))
        conclusion.append(f"{arm}: {1e6 * totals[levels[-1]]:.0f} µs per step of {levels[-1]} requests.")
    notes = [
        "plan: choosing draft lengths, with the work that the policy postpones until then. outcomes: updates from each "
        "request's accepted tokens. measured: updates from the step's time. drafted: mean draft length per request. "
        f"Medians of {rounds} rounds of {steps} steps, with their range in brackets."
    ]
    report = Report(
        "benchmarks policy",
        "Cost of choosing draft lengths",
        provenance(sys.argv[1:], seed, ()),
        conclusion,
        tables,
        [
            Chart(
                f"policy optimal, up to {tokens} draft tokens, acceptance {ACCEPTANCE:g}",
                "requests per step",
                "CPU time per step, µs",
                lines,
            )
        ],
        notes,
        measurements=measured,
        data={"tokens": tokens, "acceptance": ACCEPTANCE, "steps": steps, "rounds": rounds},
    )
    write_or_fail(report, files)
