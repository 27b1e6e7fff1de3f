"""The report of a plan: the answer, tables and charts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_spec_plugin.tools.bench.noise_gate import DISTURBING, disturbance, disturbance_text
from vllm_spec_plugin.tools.planner.forecast import pooled_curve
from vllm_spec_plugin.tools.planner.recommending import why
from vllm_spec_plugin.tools.planner.report import expected, measured, verified
from vllm_spec_plugin.tools.planner.report.data import to_json
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.samples import NONE
from vllm_spec_plugin.tools.planner.verifying import RECOMMENDED
from vllm_spec_plugin.tools.planner.words import streams
from vllm_spec_plugin.tools.report import Chart, Line, Measurements, Report, Spread, Table

_AGAIN = "ask again when the machine is quiet."
_MORE = "longer ones may be better still (--tokens; Medusa has a head per token)."


def tables(results: Results) -> Iterator[Table]:
    """The seven answers, the prediction, its verification, and what would change the answer."""
    yield measured.target_step(results)
    yield measured.verification(results)
    yield measured.drafting(results)
    yield measured.acceptance(results)
    yield measured.memory(results)
    yield expected.effect(results)
    yield verified.time_per_request(results)
    yield expected.predictions(results)
    if results.verified:
        yield verified.verification(results)
    yield expected.limits(results)


def remarks(results: Results) -> Iterator[str]:
    """What else is to be known besides the answer."""
    yield from results.verdict.reasons
    if results.verdict.is_on and (reason := why(results.choice, results.forecasts)):
        yield reason
    found = disturbance(results.others)
    if found is not None and found[0] > DISTURBING:
        yield f"Other processes used {found[0]:.2f} cores meanwhile, so all of this is uncertain: {_AGAIN}"
    if len(results.levels) > 1:
        levels = ", ".join(map(streams, results.levels))
        yield f"The best is the one with the highest mean speedup over {levels}, each of which counts alike."
    if results.choice.tokens == results.choice.candidate.lengths[-1] and not results.choice.candidate.is_tree:
        yield f"The longest draft considered, {results.choice.tokens} tokens, is the best at some level: {_MORE}"
    yield from results.remarks


def report_of(results: Results, origin: Mapping[str, Any]) -> Report:
    """Makes the report, the answer first.

    Args:
        results: of the plan.
        origin: what `provenance` gives.
    """
    measured = Measurements()
    for level, found in results.verified.items():
        for arm, name in ((NONE, "no speculation"), (RECOMMENDED, results.choice.candidate.name)):
            for number, speed in found.tokens_per_second[arm].items():
                measured.add(name, "all prompts", level, number, {"tokens per second": speed})
    disturbed = disturbance_text(results.others)
    return Report(
        "plan",
        "Speculation plan",
        dict(origin) | {"engines": results.facts},
        [results.verdict.answer, *remarks(results)],
        list(tables(results)),
        _charts(results),
        [] if disturbed is None else [disturbed],
        measurements=measured,
        data=to_json(results),
    )


def _charts(results: Results) -> list[Chart]:
    speedups = [Line("no speculation", dict.fromkeys(results.levels, 1.0), "reference")]
    for forecast in results.forecasts:
        points = {level: best.speedup for level, best in forecast.best.items()}
        speedups.append(Line(f"{forecast.candidate.name}, predicted", points))
    if results.verified:
        ratios: dict[int, Spread | None] = {level: found.speedup for level, found in results.verified.items()}
        speedups.append(Line(f"{results.choice.candidate.name}, measured", ratios, "main"))
    part = results.measured[0]
    counts = range(1, part.engine.tokens + 2)
    steps = []
    for level in results.levels:
        curve = pooled_curve(part, level)
        steps.append(Line(streams(level), {count: 1e3 * curve.at(level * count) for count in counts}))
    return [
        Chart("Throughput with the best draft length", "concurrent streams", "tokens/s over no speculation", speedups),
        Chart(
            "A step of the target by the tokens in it",
            "tokens per request",
            "time per step, ms",
            steps,
            has_levels=False,
        ),
    ]
