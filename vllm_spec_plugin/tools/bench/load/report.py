"""The report of a load sweep."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from vllm_spec_plugin.tools.bench.arms import OPTIMAL, is_stock
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.switching import RECOVERED, SwitchPhase
from vllm_spec_plugin.tools.bench.load.workloads import GREEDY, SWITCHING, TITLES, WINDOW
from vllm_spec_plugin.tools.report import Chart, Line, Report, Spread, Table, matrix, plural, show_spread

_SPEED = "tokens_per_second"


def report_of(results: SweepResults, provenance: Mapping[str, Any], rounds: int, on_cpu: bool) -> Report:
    """Makes the report.

    Args:
        results: of the sweep.
        provenance: what `provenance.provenance` gives, and more.
        rounds: requested number of rounds.
        on_cpu: whether vLLM is its CPU build.
    """
    problems = []
    if results.num_wrong:
        problems.append(f"{results.num_wrong} greedy outputs differ from those of arm {results.reference}")
    agreements = [
        {"arm": arm, "workload": workload, "level": streams} | asdict(agreement)
        for (arm, workload, streams), agreement in results.agreements.items()
    ]
    switches = [
        {"level": streams, "phases": [asdict(phase) for phase in phases]}
        for streams, phases in results.switches.items()
    ]
    best = [
        {"workload": workload, "level": streams, "arm": results.best_fixed(workload, streams)}
        for workload, streams in results.cells
    ]
    return results.report(
        "bench",
        "Speculative decoding under load",
        provenance,
        rounds,
        conclusion=list(_conclusion(results)),
        tables=list(_tables(results)),
        charts=list(_charts(results, on_cpu)),
        notes=_notes(results, on_cpu),
        problems=problems,
        data={
            "best_fixed": best,
            "agreements": agreements,
            "switching": {"window": WINDOW, "recovered": RECOVERED, "levels": switches},
        },
    )


def _conclusion(results: SweepResults) -> Iterator[str]:
    """Yields the speedups, whether greedy outputs agree, and how soon `optimal` recovers."""
    for workload, levels in results.levels.items():
        arms = [OPTIMAL] if OPTIMAL in results.arms else results.arms[1:]
        for arm in arms:
            best = {streams: results.best_fixed(workload, streams) for streams in levels}
            parts = []
            for name, others in (
                (results.reference, dict.fromkeys(levels, results.reference)),
                ("the best fixed K", best if arm not in results.fixed else {}),
            ):
                found = [
                    (spread.median, streams)
                    for streams, other in others.items()
                    if other and (spread := results.measurements.ratio(arm, other, workload, streams, _SPEED))
                ]
                if found:
                    ends = dict.fromkeys((min(found), max(found)))
                    shown = (f"{times:.2f} ({_streams(streams)})" for times, streams in ends)
                    parts.append(f"{' to '.join(shown)} times {name}")
            if parts:
                yield f"{workload}: the throughput of {arm} is {' and '.join(parts)}."
    compared = sum(agreement.outputs for agreement in results.agreements.values())
    if compared and not results.num_wrong:
        yield f"All {compared} greedy outputs are those of {results.reference}, up to ties."
    for streams, phases in results.switches.items():
        if OPTIMAL in results.arms:
            found_at = (f"phase {i} ({phase.kind}): {_recovery(phase, OPTIMAL)}" for i, phase in enumerate(phases, 1))
            where = _streams(streams)
            yield f"switching, {where}: tokens until {OPTIMAL} is near the best arm: {', '.join(found_at)}."


def _tables(results: SweepResults) -> Iterator[Table]:
    for workload, levels in results.levels.items():
        yield from _tables_of(results, workload, levels)
    for streams, phases in results.switches.items():
        for i, phase in enumerate(phases, 1):
            count = _num_windows(phase)
            yield Table(
                f"switching, {_streams(streams)}, phase {i} ({phase.kind}): tokens/s from output token ... on",
                ["arm", *(str(window * WINDOW) for window in range(count)), "near best"],
                [
                    [arm, *(f"{rate:.3g}" for rate in phase.rates[arm][:count]), _recovery(phase, arm)]
                    for arm in results.arms
                ],
            )


def _tables_of(results: SweepResults, workload: str, levels: Sequence[int]) -> Iterator[Table]:
    """Yields a workload's tables, each with a row per arm and a column per number of streams."""
    values, reference = results.measurements, results.reference

    def table(title: str, show: Callable[[str, int], str], note: str = "") -> Table:
        columns = list(map(_streams, levels))
        return matrix(f"{workload}: {title}", results.arms, columns, lambda arm, i: show(arm, levels[i]), note)

    def speed(arm: str, streams: int) -> str:
        spread = values.spread(arm, workload, streams, _SPEED)
        digits = 0 if spread is not None and spread.median >= 100 else 1
        return show_spread(spread, digits=digits) + (" *" if arm == results.best_fixed(workload, streams) else "")

    def over(metric: str, arm: str, streams: int) -> str:
        return show_spread(values.ratio(arm, reference, workload, streams, metric))

    def over_best(arm: str, streams: int) -> str:
        best = results.best_fixed(workload, streams) or ""
        return show_spread(values.ratio(arm, best, workload, streams, _SPEED))

    def figure(metric: str, arm: str, streams: int) -> str:
        value = values.median(arm, workload, streams, metric)
        return "-" if value is None else f"{value:.2f}"

    def milliseconds(metric: str, arm: str, streams: int) -> str:
        spread = values.spread(arm, workload, streams, metric)
        return show_spread(spread, 1e3, digits=2 if spread is None or spread.median < 0.01 else 1)

    def greedy(arm: str, streams: int) -> str:
        agreement = results.agreements.get((arm, workload, streams))
        if agreement is None:
            return "-"
        if agreement.wrong:
            return f"{agreement.wrong} WRONG"
        return f"{agreement.rounding} tied" if agreement.rounding else "equal"

    yield table("tokens/s", speed, "*: best fixed K at this level." if results.fixed else "")
    yield table(f"speedup over {reference}", partial(over, _SPEED))
    if results.fixed:
        yield table("throughput over the best fixed K", over_best)
    yield table("acceptance length", partial(figure, "acceptance_length"))
    yield table("draft tokens per request and step", partial(figure, "draft_length"))
    yield table("TPOT, ms", partial(milliseconds, "tpot"))
    yield table(f"TPOT over {reference}", partial(over, "tpot"))
    yield table("TTFT, ms", partial(milliseconds, "ttft"))
    if any(key[1] == workload for key in results.agreements):
        yield table(f"greedy outputs beside those of {reference}", greedy)


def _recovery(phase: SwitchPhase, arm: str) -> str:
    tokens = phase.recovered[arm]
    return "never" if tokens is None else str(tokens)


def _num_windows(phase: SwitchPhase) -> int:
    """Returns the number of windows that all arms have."""
    return min(map(len, phase.rates.values()))


def _charts(results: SweepResults, on_cpu: bool) -> Iterator[Chart]:
    """Yields speedup and time per token by workload, and throughput over time of `switching`."""
    for workload, levels in results.levels.items():
        # What the notes call wrong is not drawn.
        arms = [arm for arm in results.arms if not (on_cpu and is_stock(arm) and workload not in GREEDY)]
        values = results.measurements
        if workload != SWITCHING:
            speed, time = f"tokens/s over {results.reference}", "TPOT, ms"
            speedups, tpots = [], []
            for arm in arms:
                ratios = {n: values.ratio(arm, results.reference, workload, n, _SPEED) for n in levels}
                times = {n: _scaled(values.spread(arm, workload, n, "tpot")) for n in levels}
                speedups.append(Line(arm, ratios, _role(results, arm)))
                tpots.append(Line(arm, times, _role(results, arm)))
            yield Chart(f"throughput, {TITLES[workload]}", "concurrent streams", speed, speedups)
            yield Chart(f"time per output token, {TITLES[workload]}", "concurrent streams", time, tpots)
            continue
        for streams in levels:
            phases = results.switches[streams]
            counts = [_num_windows(phase) for phase in phases]
            ends = [(float(sum(counts[: i + 1]) * WINDOW), phase.kind) for i, phase in enumerate(phases)]
            lines = []
            for arm in arms:
                rates = [rate for phase, count in zip(phases, counts, strict=True) for rate in phase.rates[arm][:count]]
                points = {(i + 0.5) * WINDOW: rate for i, rate in enumerate(rates)}
                lines.append(Line(arm, points, _role(results, arm)))
            yield Chart(
                f"throughput, {TITLES[SWITCHING]}, {_streams(streams)}",
                "output tokens per stream",
                "tokens/s of all streams",
                lines,
                has_levels=False,
                sections=ends,
            )


def _streams(number: int) -> str:
    return plural(number, "stream")


def _scaled(spread: Spread | None) -> Spread | None:
    return spread and Spread(1e3 * spread.median, 1e3 * spread.low, 1e3 * spread.high)


def _role(results: SweepResults, arm: str) -> Any:
    return {results.reference: "reference", OPTIMAL: "main"}.get(arm, "other")


def _notes(results: SweepResults, on_cpu: bool) -> Iterator[str]:
    yield (
        "Closed loop: each level keeps that number of requests in flight. Tokens and time count from when each stream "
        "has its first token; later prompts are in the time. Each arm ran each level once in short before, which does "
        "not count. Medians of the rounds, ± half the distance of the quartiles; ratios are taken round by round."
    )
    yield (
        "Acceptance length: 1 + accepted draft tokens / drafts. TPOT: time per output token after the first. TTFT: "
        "time to first token. Both are medians of the requests. Greedy outputs are compared as far as both arms got. "
        "Tied: they part at two tokens of equal probability."
    )
    if results.switches:
        yield (
            f"switching: all streams turn at once, with a new request each. Windows of {WINDOW} output tokens per "
            "stream; the first window of a phase has its prompts. Near best: tokens per stream before the first two "
            f"windows in a row with at least {RECOVERED:.0%} of the throughput of the arm that is fastest over "
            "the phase."
        )
    if on_cpu and any(map(is_stock, results.arms)) and any(workload not in GREEDY for workload, _ in results.cells):
        yield (
            "On CPU vLLM's own sampler gives wrong outputs with speculation (docs/design/verification.md, \"Why not "
            "vLLM's own sampler\"). Greedy requests in the same batch are wrong too. Figures of vLLM's own arms are "
            "meaningful for workloads at temperature 0 only, and only drawn there."
        )
