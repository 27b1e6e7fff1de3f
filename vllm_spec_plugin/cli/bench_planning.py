"""`vllm-spec bench planning`: times `policy: optimal` in the scheduler, per step."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import JsonFile

_REQUESTS = (1, 4, 16, 64)


def bench_planning(
    requests: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests per step; repeatable. [default: 1, 4, 16, 64]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum draft tokens per request and step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps per round.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; figures are their medians.")] = 9,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drafts' acceptance.")] = 0,
    json_path: JsonFile = None,
) -> None:
    """Time the policy that chooses draft lengths by measured acceptance and cost, per step of all requests.

    Measures CPU time of one thread, without models or a server. A draft token is accepted with probability 0.7 if
    all before it were. Figures are medians of the rounds. "verified+advance" is called once per request; work that
    the policy postpones until it plans counts as planning. "drafted" is the mean draft length per request. Keep
    the machine otherwise idle: other processes raise every figure.
    """
    import json
    from dataclasses import asdict

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.input import check_output
    from vllm_spec_plugin.tools.bench.planning import ACCEPTANCE, CASES, config_of, measure
    from vllm_spec_plugin.tools.bench.tables import new_table

    console, results = new_console(), []
    check_output("--json", json_path)
    for case in CASES:
        config = config_of(case, tokens)
        methods = [proposer.method for proposer in config.proposers]
        title = f"{', '.join(methods)}: µs per step, K={tokens}, {rounds} rounds of {steps} steps"
        table = new_table(title, ("requests", "plan", "verified+advance", "measured", "total", "drafted"))
        for num_requests in sorted(set(requests or _REQUESTS)):
            cost = measure(config, num_requests, steps, rounds, seed)
            parts = (cost.plan_us, cost.outcomes_us, cost.measured_us, cost.total_us, cost.draft_length)
            table.add_row(str(num_requests), *(f"{part:.1f}" for part in parts))
            results.append({"proposers": methods, "requests": num_requests, **asdict(cost)})
        console.print(table)
    if json_path is not None:
        facts = {"tokens": tokens, "acceptance": ACCEPTANCE, "steps": steps, "rounds": rounds, "seed": seed}
        json_path.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n", encoding="utf-8")
