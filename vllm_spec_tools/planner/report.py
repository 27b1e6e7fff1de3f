"""The report of a recommendation: the answer and its reasons before the report of the final comparison. Pure."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from vllm_spec_tools.bench.arms import NONE
from vllm_spec_tools.bench.load.report import report_of as report_of_comparison
from vllm_spec_tools.bench.noise_gate import DISTURBING, disturbance_notes
from vllm_spec_tools.planner.candidates import Memory, memory_of
from vllm_spec_tools.planner.planning import Plan
from vllm_spec_tools.planner.recommending import ratios_of
from vllm_spec_tools.report import Chart, Line, Report, Spread, Table, plural, show_spread


def report_of(plan: Plan, origin: Mapping[str, Any], rounds: int) -> Report:
    """Makes the report.

    Args:
        rounds: of the final comparison, as wanted.
    """
    compared = plan.compared
    found = report_of_comparison(compared, origin, rounds) if compared else Report("bench", "", origin)
    return replace(
        found,
        title="Recommendation of speculative decoding",
        conclusion=[plan.verdict.answer, *_remarks(plan), *found.conclusion],
        tables=[_steps(plan), _acceptance(plan), _memory(plan), _predictions(plan), *found.tables],
        charts=[_chart(plan), *found.charts],
        notes=[*disturbance_notes(plan.others), *found.notes],
        data={**found.data, "recommendation": _data(plan)},
    )


def _remarks(plan: Plan) -> Iterator[str]:
    """Lists remarks besides the answer."""
    yield from plan.verdict.reasons
    if plan.others and (others := statistics.median(plan.others)) > DISTURBING:
        yield f"Other processes used {others:.2f} cores meanwhile, so all of this is uncertain: repeat it in quiet."
    if plan.choice.tokens == plan.choice.candidate.choices[-1] and len(plan.choice.candidate.choices) > 1:
        yield f"The longest draft considered, {plan.choice.tokens} tokens, is the best at some level: see --tokens."
    if plan.choice.nextn is not None:
        length, accepted = plan.choice.nextn
        what = f"{plan.choice.candidate.name}: draft length, accepted draft tokens per step on these prompts"
        yield f"For AIConfigurator: --nextn {length} --nextn-accepted {accepted:.2f} ({what})."


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _steps(plan: Plan) -> Table:
    engine, measured = plan.measured[0]
    plain = {level: measured.plain_step(level) for level in plan.levels}
    curves = {level: measured.curve(level) for level in plan.levels}
    rows = [["no speculation", *map(_ms, plain.values())]]
    for length in engine.candidates[0].lengths:
        steps = {level: curve.at(level * (1 + length)) for level, curve in curves.items()}
        cells = (f"{_ms(step)} ({step / plain[level]:.2f}x)" for level, step in steps.items())
        rows.append([f"verification of {1 + length} tokens", *cells])
    for forecast in plan.forecasts:
        length = forecast.candidate.lengths[-1]
        cells = (_ms(costs.drafting_of(length)) for costs in forecast.costs.values())
        rows.append([f"drafting: {forecast.candidate.arm(length)}", *cells])
    note = (
        f"Of all requests together. no speculation: one token per request; verification: tokens per request, in the "
        f"engine of {engine.name}, in brackets over no speculation; drafting: on average, also over steps without a "
        "guess."
    )
    return Table("Steps, ms", ["step", *(plural(level, "stream") for level in plan.levels)], rows, note)


def _acceptance(plan: Plan) -> Table:
    rows = []
    for forecast in plan.forecasts:
        for workload, by_length in forecast.acceptance.items():
            found = by_length[forecast.candidate.lengths[-1]]
            rates = " ".join(f"{100 * rate:.0f}" for rate in found.rates) if found.drafts else "-"
            length = "-" if found.length is None else f"{found.length:.2f}"
            figures = f"{100 * found.draft_share:.0f}", rates, length, f"{found.tokens_per_step:.2f}"
            rows.append([forecast.candidate.name, workload, *figures])
    header = ["proposer", "workload", "drafts, %", "alpha by position, %", "length", "per step"]
    note = (
        "Drafts have the longest measured length. drafts: share of steps with a draft; alpha: share of a position (in "
        "trees a level) accepted where all earlier ones were; length: 1 + accepted / drafts; per step: output tokens."
    )
    return Table("Acceptance", header, rows, note, text_columns=2)


def _memories(plan: Plan) -> dict[str, Memory]:
    one = [forecast.candidate for forecast in plan.forecasts]
    return {own.name: memory_of(own, plan.facts[NONE], plan.facts[own.arm(own.lengths[-1])]) for own in one}


def _memory(plan: Plan) -> Table:
    rows = []
    for name, taken in _memories(plan).items():
        weights = "not known" if taken.weights is None else f"{taken.weights / (1 << 20):,.1f}"
        rows.append([name, weights, f"{taken.kv_per_token / 1024:,.1f}"])
    note = f"Beside the target's, whose KV takes {plan.facts[NONE]['kv_bytes_per_token'] / 1024:,.1f} KiB per token."
    return Table("Memory", ["proposer", "weights, MiB", "KV per token, KiB"], rows, note)


def _predictions(plan: Plan) -> Table:
    ratios = ratios_of(plan.compared.measurements, plan.choice.best) if plan.compared else {}
    rows = []
    for forecast in plan.forecasts:
        for level, best in forecast.best.items():
            name = forecast.candidate.name if level == plan.levels[0] else ""
            steps = f"{best.tokens_per_step:.2f}", _ms(best.step_seconds), _ms(best.draft_seconds)
            row = [name, str(level), str(best.tokens), *steps, f"{best.decode_speedup:.2f}x", f"{best.speedup:.2f}x"]
            measured = ratios.get(level) if forecast is plan.choice else None
            error = f"{best.speedup / measured.median - 1:+.0%}" if measured else "-"
            rows.append([*row, show_spread(measured), error])
    header = ["proposer", "streams", "K", "per step", "step, ms", "drafting", "steps", "all", "measured", "error"]
    note = (
        "K: best draft length, 0 is none; per step: tokens of a request; step: with drafting; steps: speedup of the "
        "steps alone, theorem 3.8 with what was measured here; all: with prompts; measured: in the final comparison."
    )
    return Table("Prediction", header, rows, note)


def _chart(plan: Plan) -> Chart:
    lines = [Line("no speculation", dict.fromkeys(plan.levels, 1.0), "reference")]
    for forecast in plan.forecasts:
        points = {level: best.speedup for level, best in forecast.best.items()}
        lines.append(Line(f"{forecast.candidate.name}, predicted", points))
    if plan.compared:
        ratios: dict[int, Spread | None] = {**ratios_of(plan.compared.measurements, plan.choice.best)}
        lines.append(Line(f"{plan.choice.candidate.name}, measured", ratios, "main"))
    return Chart("throughput with the best draft length", "concurrent streams", f"tokens/s over {NONE}", lines)


def _data(plan: Plan) -> dict[str, Any]:
    """Returns answer, measurements and predictions, as JSON takes them: seconds and bytes."""
    acceptance = [
        {"candidate": forecast.candidate.name, "workload": workload, "tokens": tokens}
        | {name: getattr(found, name) for name in ("rates", "length", "tokens_per_step")}
        | asdict(found)
        for forecast in plan.forecasts
        for workload, by_length in forecast.acceptance.items()
        for tokens, found in by_length.items()
    ]
    forecasts = [
        {
            "candidate": one.candidate.name,
            "proposer": one.candidate.proposer,
            "score": one.score[0],
            "tokens": one.tokens,
            "levels": [
                asdict(costs) | {"best": asdict(one.best[level]), "all": list(map(asdict, one.all[level][1:]))}
                for level, costs in one.costs.items()
            ],
        }
        for one in plan.forecasts
    ]
    return {
        **asdict(plan.verdict),
        "choice": {"candidate": plan.choice.candidate.name, "tokens": plan.choice.tokens},
        "aiconfigurator": dict(zip(("nextn", "nextn_accepted"), plan.choice.nextn or (), strict=False)),
        "workloads": [{"name": one.name, "share": one.share, "num_tokens": one.num_tokens} for one in plan.workloads],
        "acceptance": acceptance,
        "memory": {name: taken._asdict() for name, taken in _memories(plan).items()},
        "forecasts": forecasts,
        "others": list(plan.others),
    }
