"""The report of a plan: the answer, tables, charts and figures for programs. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vllm_spec_tools.bench.noise_gate import DISTURBING, disturbance, disturbance_text
from vllm_spec_tools.planner.forecast import Forecast, acceptance_of, pooled_curve
from vllm_spec_tools.planner.recommending import why
from vllm_spec_tools.planner.results import Results
from vllm_spec_tools.planner.samples import NONE
from vllm_spec_tools.planner.tables import tables
from vllm_spec_tools.planner.verifying import RECOMMENDED
from vllm_spec_tools.report import Chart, Line, Measurements, Report, Spread, plural

_AGAIN = "ask again when the machine is quiet."
_MORE = "longer ones may be better still (--tokens; Medusa has a head per token)."


def remarks(results: Results) -> Iterator[str]:
    """What else is to be known besides the answer."""
    yield from results.verdict.reasons
    if results.verdict.is_on and (reason := why(results.choice, results.forecasts)):
        yield reason
    found = disturbance(results.others)
    if found is not None and found[0] > DISTURBING:
        yield f"Other processes used {found[0]:.2f} cores meanwhile, so all of this is uncertain: {_AGAIN}"
    if len(results.levels) > 1:
        levels = ", ".join(plural(level, "stream") for level in results.levels)
        yield f"The best is the one with the highest mean speedup over {levels}, each of which counts alike."
    if results.choice.tokens == results.choice.candidate.lengths[-1] and not results.choice.candidate.is_tree:
        yield f"The longest draft considered, {results.choice.tokens} tokens, is the best at some level: {_MORE}"
    yield from results.remarks


def report_of(results: Results, origin: Mapping[str, Any]) -> Report:
    """Makes the report, the answer first.

    Args:
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
        data=_data(results),
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
        steps.append(Line(plural(level, "stream"), {count: 1e3 * curve.at(level * count) for count in counts}))
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


def _data(results: Results) -> dict[str, Any]:
    """Returns answer, measurements and predictions, as JSON takes them: seconds and bytes."""
    return {
        "answer": asdict(results.verdict),
        "choice": {"candidate": results.choice.candidate.name, "tokens": results.choice.tokens},
        "workloads": [
            {"name": one.name, "share": one.share, "temperature": one.temperature, "num_tokens": one.num_tokens}
            for one in results.workloads
        ],
        "steps": [
            {"engine": part.engine.name, "concurrency": level} | asdict(pooled_curve(part, level))
            for part in results.measured
            for level in results.levels
        ],
        "acceptance": list(_acceptance(results)),
        "memory": {name: asdict(taken) for name, taken in results.memory.items()},
        "forecasts": [_forecast(one) for one in results.forecasts],
        "verified": [
            {"concurrency": level, "error": results.choice.best[level].speedup / found.speedup.median - 1}
            | asdict(found)
            | {"speedup": asdict(found.speedup)}
            for level, found in results.verified.items()
        ],
        "others": list(results.others),
        "remarks": list(results.remarks),
    }


def _acceptance(results: Results) -> Iterator[dict[str, Any]]:
    """Yields how drafts fare, per candidate, workload and draft length."""
    for part in results.measured:
        for candidate in part.engine.candidates:
            for workload in results.workloads:
                for tokens in candidate.lengths:
                    found = acceptance_of(part, candidate, tokens, workload.name)
                    where = {"candidate": candidate.name, "workload": workload.name, "tokens": tokens}
                    derived = {name: getattr(found, name) for name in ("rates", "length", "tokens_per_step")}
                    yield where | derived | asdict(found)


def _forecast(one: Forecast) -> dict[str, Any]:
    levels = [
        asdict(costs)
        | {"best": asdict(one.best[level]), "all": list(map(asdict, one.all[level][1:]))}
        | {"limits": asdict(one.limits[level])}
        for level, costs in one.costs.items()
    ]
    candidate = {"candidate": one.candidate.name, "proposer": one.candidate.proposer}
    return candidate | {"score": one.score, "tokens": one.tokens, "levels": levels}
