"""The report of a plan: the answer, tables, charts and figures for programs. Pure."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vllm_spec_tools.bench.load.sweep import LATENCIES
from vllm_spec_tools.bench.noise_gate import DISTURBING, disturbance_notes
from vllm_spec_tools.planner.candidates import NONE
from vllm_spec_tools.planner.forecast import Forecast, acceptance_of, plain_step, pooled_curve
from vllm_spec_tools.planner.measuring import RECOMMENDED
from vllm_spec_tools.planner.models import TARGET
from vllm_spec_tools.planner.recommending import why
from vllm_spec_tools.planner.results import Results
from vllm_spec_tools.report import (
    Chart,
    Line,
    Measurements,
    Report,
    Spread,
    Table,
    plural,
    show_percentiles,
    show_spread,
)


def tables(results: Results) -> Iterator[Table]:
    """Yields all tables, in the order of the report."""
    yield _target_step(results)
    yield _verified_tokens(results)
    yield _drafting(results)
    yield _acceptance(results)
    yield _memory(results)
    yield _effect(results)
    yield _time_per_request(results)
    yield _predictions(results)
    if results.verified:
        yield _verification(results)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _streams(results: Results) -> list[str]:
    return [plural(level, "stream") for level in results.levels]


def _target_step(results: Results) -> Table:
    samples = [sample for part in results.measured for sample in part.of(NONE)]
    rows = []
    for level in results.levels:
        seconds = plain_step([sample for sample in samples if sample.concurrency == level], level)
        rows.append([str(level), _ms(seconds), f"{level / seconds:.4g}"])
    note = "One token per request and step; tokens/s of the steps alone, without prompts."
    return Table("1. The target's step", ["streams", "ms", "tokens/s"], rows, note)


def _verified_tokens(results: Results) -> Table:
    part = results.measured[0]
    curves = {level: pooled_curve(part, level) for level in results.levels}
    plain = {level: plain_step(part.of(NONE, level), level) for level in results.levels}
    rows = []
    for length in (0, *part.engine.candidates[0].lengths):
        steps = {level: curve.at(level * (1 + length)) for level, curve in curves.items()}
        cells = (f"{_ms(step)} ({step / plain[level]:.2f}x)" for level, step in steps.items())
        rows.append([str(1 + length), *cells])
    note = (
        f"In the engine of {part.engine.name}, without the drafting; in brackets over a step without speculation, in "
        "turns with which it was measured."
    )
    title = "2. Verification: ms of a step by the tokens in it"
    return Table(title, ["tokens per request", *_streams(results)], rows, note)


def _drafting(results: Results) -> Table:
    rows = []
    for forecast in results.forecasts:
        costs = [cost.drafting for cost in forecast.costs.values()]
        cells = [_ms(cost.fixed) + (f" + {_ms(cost.token)} K" if cost.token else "") for cost in costs]
        rows.append([forecast.candidate.name, *cells])
    note = "For all requests of a step together, K tokens each; on average also over steps without a guess."
    return Table("3. Drafting: ms per step", ["proposer", *_streams(results)], rows, note)


def _acceptance(results: Results) -> Table:
    rows = []
    for part in results.measured:
        for candidate in part.engine.candidates:
            for workload in results.workloads:
                found = acceptance_of(part, candidate, candidate.lengths[-1], workload.name)
                rates = " ".join(f"{100 * rate:.0f}" for rate in found.rates) if found.drafts else "-"
                length = "-" if found.length is None else f"{found.length:.2f}"
                figures = f"{100 * found.draft_share:.0f}", rates, length, f"{found.tokens_per_step:.2f}"
                rows.append([candidate.name, workload.name, *figures])
    header = ["proposer", "workload", "drafts, %", "alpha by position, %", "length", "per step"]
    note = (
        "Drafts have the longest measured length. drafts: share of steps with a draft; alpha: share of a position (in "
        "trees a level) accepted where all earlier ones were; length: 1 + accepted / drafts; per step: output tokens."
    )
    return Table("4. Acceptance", header, rows, note, text_columns=2)


def _memory(results: Results) -> Table:
    target = results.memory[TARGET]
    rows = []
    for name, taken in results.memory.items():
        cells = []
        for size, whole in ((taken.weights, target.weights), (taken.kv_per_token, target.kv_per_token)):
            share = f" ({size / whole:.1%})" if name != TARGET and size is not None and whole else ""
            cells.append("not known" if size is None else _size(size) + share)
        rows.append([name, *cells])
    note = "Beside the target's, in its number format; in brackets over the target's."
    return Table("5. Memory", ["", "weights", "KV per token"], rows, note)


def _size(num_bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes} B" if num_bytes else "0"


def _effect(results: Results) -> Table:
    rows = []
    for forecast in results.forecasts:
        bests = forecast.best.values()
        cells = (f"{one.speedup:.2f}x ({one.tokens} tokens)" if one.tokens else "1.00x (off)" for one in bests)
        rows.append([forecast.candidate.name, *cells])
    if results.verified:
        ratios = (f"{found.speedup.median:.2f}x" for found in results.verified.values())
        rows.append([f"{results.choice.candidate.name}, measured", *ratios])
    note = "Tokens/s over no speculation, prompts included, with the draft length that is expected to be best."
    return Table("6. Effect", ["proposer", *_streams(results)], rows, note)


def _time_per_request(results: Results) -> Table:
    title = f"7. Times of a request without and with {results.choice.candidate.name}, ms"
    header = ["streams", "TTFT without", "TTFT with", "TPOT without", "TPOT with"]
    note = "TTFT: time to the first token; TPOT: time per token after it; latency: time to the last token."
    rows = []
    if not results.verified:
        for level, best in results.choice.best.items():
            plain = results.choice.all[level][0]
            rows.append([str(level), *map(_ms, (plain.ttft, best.ttft, plain.tpot, best.tpot))])
        return Table(title, header, rows, f"Expected, not measured. {note}")

    for level, found in results.verified.items():
        times = (found.latencies[arm][what] for what in LATENCIES for arm in (NONE, RECOMMENDED))
        rows.append([str(level), *(show_percentiles(one.values()) for one in times)])
    header += ["latency without", "latency with"]
    return Table(title, header, rows, f"p50/p95/p99 of requests. {note}")


def _predictions(results: Results) -> Table:
    rows = []
    for forecast in results.forecasts:
        for level, best in forecast.best.items():
            name = forecast.candidate.name if level == results.levels[0] else ""
            steps = f"{best.tokens_per_step:.2f}", _ms(best.step_seconds), _ms(best.draft_seconds)
            speedups = f"{best.decode_speedup:.2f}x", f"{best.speedup:.2f}x"
            rows.append([name, str(level), str(best.tokens), *steps, *speedups, _ms(best.tpot)])
    header = ["proposer", "streams", "K", "per step", "step, ms", "drafting", "steps", "all", "TPOT, ms"]
    note = (
        "K: best draft length, 0 is none; per step: tokens of a request; step: with drafting; steps: speedup of the "
        "steps alone, theorem 3.8 with what was measured here; all: with prompts."
    )
    return Table("Prediction", header, rows, note)


def _verification(results: Results) -> Table:
    rows = []
    for level, found in results.verified.items():
        best = results.choice.best[level]
        speeds = [statistics.median(found.tokens_per_second[arm].values()) for arm in (NONE, RECOMMENDED)]
        shown = [f"{speed:.{0 if speed >= 100 else 1}f}" for speed in speeds]
        tpot = found.latencies[RECOMMENDED]["tpot"]["p50"]
        errors = [f"{best.speedup / found.speedup.median - 1:+.0%}"]
        errors.append("-" if tpot is None else f"{best.tpot / tpot - 1:+.0%}")
        noise = "~" * (found.speedup.differs is False)
        ratios = [noise + show_spread(found.speedup), f"{best.speedup:.2f}"]
        rows.append([str(level), *shown, *ratios, *errors, f"{found.draft_length:.1f}"])
    header = ["streams", "off, tok/s", "on, tok/s", "ratio", "predicted", "error", "TPOT error", "drafted"]
    note = (
        "In a closed loop of the prompts, in turns; medians and ranges of rounds, ~: within noise. errors: of "
        "the prediction, over what was measured; drafted: tokens per request and step, as the policy chose."
    )
    return Table(f"Verification: {results.choice.candidate.name} against no speculation", header, rows, note)


_AGAIN = "ask again when the machine is quiet."
_MORE = "longer ones may be better still (--tokens; Medusa has a head per token)."


def remarks(results: Results) -> Iterator[str]:
    """Lists remarks besides the answer."""
    yield from results.verdict.reasons
    if results.verdict.is_on and (reason := why(results.choice, results.forecasts)):
        yield reason
    if results.others and (others := statistics.median(results.others)) > DISTURBING:
        yield f"Other processes used {others:.2f} cores meanwhile, so all of this is uncertain: {_AGAIN}"
    if len(results.levels) > 1:
        levels = ", ".join(plural(level, "stream") for level in results.levels)
        yield f"The best is the one with the highest mean speedup over {levels}, each of which counts alike."
    if results.choice.tokens == results.choice.candidate.lengths[-1] and not results.choice.candidate.is_tree:
        yield f"The longest draft considered, {results.choice.tokens} tokens, is the best at some level: {_MORE}"
    yield from results.remarks


def report_of(results: Results, origin: Mapping[str, Any]) -> Report:
    """Makes the report, the answer first."""
    measured = Measurements()
    for level, found in results.verified.items():
        for arm, name in ((NONE, "no speculation"), (RECOMMENDED, results.choice.candidate.name)):
            for number, speed in found.tokens_per_second[arm].items():
                measured.add(name, "all prompts", level, number, {"tokens per second": speed})
    return Report(
        "plan",
        "Speculation plan",
        dict(origin) | {"engines": results.facts},
        [results.verdict.answer, *remarks(results)],
        list(tables(results)),
        _charts(results),
        disturbance_notes(results.others),
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
        "acceptance": list(_acceptance_data(results)),
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


def _acceptance_data(results: Results) -> Iterator[dict[str, Any]]:
    """Yields the acceptance of drafts, per candidate, workload and draft length."""
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
        asdict(costs) | {"best": asdict(one.best[level]), "all": list(map(asdict, one.all[level][1:]))}
        for level, costs in one.costs.items()
    ]
    candidate = {"candidate": one.candidate.name, "proposer": one.candidate.proposer}
    return candidate | {"score": one.score, "tokens": one.tokens, "levels": levels}
