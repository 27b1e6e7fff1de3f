"""The report of a load sweep."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from vllm_spec_tools.bench.arms import OPTIMAL
from vllm_spec_tools.bench.load.sweep import LATENCIES, SweepResults
from vllm_spec_tools.bench.load.workloads import FIRST_PASS, PASSES, SWITCHING, TITLES, WARM_PASSES
from vllm_spec_tools.bench.noise_gate import DISTURBING, disturbance_notes
from vllm_spec_tools.report import (
    PERCENTILES,
    Chart,
    Line,
    Ratio,
    Report,
    Spread,
    Table,
    matrix,
    plural,
    show_percentiles,
    show_spread,
)

_SPEED = "tokens_per_second"
_COUNTS = ("drafts", "draft_tokens", "accepted_tokens", "output_tokens", "preemptions")
_FASTEST = "vLLM's fastest arm"
_NOISE = "~: within noise."
_DISTURBED = f"!: in some rounds other processes used more than {DISTURBING} of the same cores."
_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}


def report_of(results: SweepResults, provenance: Mapping[str, Any], rounds: int) -> Report:
    """Makes the report.

    Args:
        rounds: as wanted.
    """
    problems = []
    if results.rounds < rounds:
        problems.append(f"interrupted: these are the first {results.rounds} of {rounds} rounds")
    if results.num_wrong:
        problems.append(f"{results.num_wrong} greedy outputs differ from those of arm {results.reference}")
    best = [
        {"workload": workload, "level": streams, "arm": results.fastest(results.fixed, workload, streams)}
        for workload, streams in results.cells
    ]
    cells = list(_cells(results))
    data = {"arms": list(results.arms), "cells": cells, "best_fixed": best, "others": results.others}
    return Report(
        "bench",
        "Speculative decoding under load",
        provenance,
        list(_conclusion(results)),
        [table for group in _groups(results) for table in _tables(results, group)],
        list(_charts(results)),
        [*_preemptions(cells), *_notes(results), *disturbance_notes(results.others)],
        problems,
        results.measurements,
        data,
    )


def _cells(results: SweepResults) -> Iterator[dict[str, Any]]:
    """Yields all figures of an arm with a workload and number of streams, for programs."""
    values = results.measurements
    for workload, streams in results.cells:
        stock = results.fastest(results.stock, workload, streams)
        for arm in results.arms:
            agreement = results.agreements.get((arm, workload, streams))
            median = partial(values.median, arm, workload, streams)
            spread = values.spread(arm, workload, streams, _SPEED)
            over_stock = None
            if stock is not None and arm not in results.stock:
                over_stock = {"arm": stock} | _ratio(values.ratio(arm, stock, workload, streams, _SPEED))
            yield {
                "workload": workload,
                "streams": streams,
                "arm": arm,
                "rounds": len(values.rounds(arm, workload, streams, _SPEED)),
                "tokens_per_second": asdict(spread) if spread else {},
                "ratio": _ratio(values.ratio(arm, results.reference, workload, streams, _SPEED)),
                "over_vllm": over_stock,
                **{name: {f"p{p}": median(f"{name}_p{p}") for p in PERCENTILES} for name in LATENCIES},
                **{name: sum(values.rounds(arm, workload, streams, name).values()) for name in _COUNTS},
                "acceptance_length": median("acceptance_length"),
                "draft_length": median("draft_length"),
                "greedy": agreement and agreement._asdict(),
                "disturbed_rounds": _disturbed(results, arm, workload, streams),
            }


def _disturbed(results: SweepResults, arm: str, workload: str, streams: int) -> int:
    """Returns the number of rounds in which other processes worked on the same cores."""
    others = results.measurements.rounds(arm, workload, streams, "other_cores")
    return sum(cores > DISTURBING for cores in others.values())


def _ratio(ratio: Ratio | None) -> dict[str, Any]:
    return asdict(ratio) | {"differs": ratio.differs} if ratio else {}


def _groups(results: SweepResults) -> list[tuple[str, ...]]:
    """Returns each built-in workload alone, and the categories of files together."""
    own = tuple(workload for workload in results.levels if workload not in TITLES)
    return [(workload,) for workload in results.levels if workload not in own] + [own] * bool(own)


def _name(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{len(group)} categories"


def _conclusion(results: SweepResults) -> Iterator[str]:
    """Yields the speedups, and whether greedy outputs agree."""
    others = [arm for arm in results.arms[1:] if arm not in results.fixed] or results.arms[1:]
    for group in _groups(results):
        for arm in others:
            over: dict[str, Sequence[str]] = {results.reference: [results.reference]}
            if arm not in results.stock:
                over[_FASTEST] = results.stock
            if arm == OPTIMAL:
                over["the best fixed K"] = results.fixed
            for name, best in over.items():
                if best:
                    yield f"{_name(group)}: {arm} over {name}: {_gains(results, arm, group, best)}."
    compared = sum(agreement.outputs for agreement in results.agreements.values())
    if compared and not results.num_wrong:
        yield f"All {compared} greedy outputs are those of {results.reference}, up to ties."


def _gains(results: SweepResults, arm: str, group: Sequence[str], others: Sequence[str]) -> str:
    """Returns an arm's throughput over the fastest of others, by streams, the geometric mean over categories.

    It says what is noise and where nothing was drafted.
    """
    parts, values = [], results.measurements
    for streams in results.levels[group[0]]:
        ratios = {workload: _over(results, arm, others, workload, streams) for workload in group}
        pairs = [(arm, results.fastest(others, workload, streams) or "", workload, streams) for workload in group]
        ratio = ratios[group[0]] if len(group) == 1 else values.mean_ratio(pairs, _SPEED)
        if ratio is None:
            continue
        notes = [f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio.rounds > 1 else "one round: noise unknown"]
        if ratio.differs is False:
            notes.insert(0, "within noise")
        if len(group) > 1:
            medians = sorted((one.median, workload) for workload, one in ratios.items() if one)
            notes.append(" to ".join(f"{workload} {median:.2f}" for median, workload in (medians[0], medians[-1])))
        if not any(sum(values.rounds(arm, workload, streams, "draft_tokens").values()) for workload in group):
            notes.append("nothing drafted")
        parts.append(f"{ratio.median:.2f} times at {plural(streams, 'stream')} ({', '.join(notes)})")
    return ", ".join(parts)


def _over(results: SweepResults, arm: str, others: Sequence[str], workload: str, streams: int) -> Ratio | None:
    """Returns an arm's throughput over that of the fastest of others."""
    other = results.fastest(others, workload, streams) or ""
    return results.measurements.ratio(arm, other, workload, streams, _SPEED)


def _tables(results: SweepResults, group: Sequence[str]) -> Iterator[Table]:
    """Yields tables with a row per arm, of several categories per category and arm, and a column per level."""
    values, reference, levels = results.measurements, results.reference, results.levels[group[0]]

    def table(title: str, show: Callable[[str, str, int], str], note: str = "", *, is_of_drafts: bool = False) -> Table:
        columns = [plural(level, "stream") for level in levels]
        if len(group) == 1:
            cell = partial(show, group[0])
            return matrix(f"{group[0]}: {title}", results.arms, columns, lambda arm, i: cell(arm, levels[i]), note)
        arms = [arm for arm in results.arms if arm != reference or not is_of_drafts]
        rows = [
            [workload if arm == arms[0] else "", arm, *(show(workload, arm, level) for level in levels)]
            for workload in group
            for arm in arms
        ]
        return Table(f"categories: {title}", ["category", "arm", *columns], rows, note, text_columns=2)

    def speed(workload: str, arm: str, streams: int) -> str:
        spread = values.spread(arm, workload, streams, _SPEED)
        digits = 0 if spread is not None and spread.median >= 100 else 1
        best = results.fastest(results.fixed, workload, streams)
        marks = " *" * (arm == best) + " !" * bool(_disturbed(results, arm, workload, streams))
        return show_spread(spread, digits=digits) + marks

    def over(others: Sequence[str], workload: str, arm: str, streams: int) -> str:
        ratio = _over(results, arm, others, workload, streams)
        is_other = arm == results.fastest(others, workload, streams)
        return "~" * (ratio is not None and ratio.differs is False and not is_other) + show_spread(ratio)

    def drafts(workload: str, arm: str, streams: int) -> str:
        length = values.median(arm, workload, streams, "acceptance_length")
        drafted = f"{values.median(arm, workload, streams, 'draft_length') or 0:.2f}"
        return drafted if length is None else f"{drafted} ({length:.2f})"

    def milliseconds(name: str, workload: str, arm: str, streams: int) -> str:
        return show_percentiles(values.median(arm, workload, streams, f"{name}_p{p}") for p in PERCENTILES)

    def greedy(workload: str, arm: str, streams: int) -> str:
        found = results.agreements.get((arm, workload, streams))
        if found is None:
            return "-"
        return f"{found.wrong} WRONG" if found.wrong else f"{found.rounding} tied" if found.rounding else "equal"

    shown = [(arm, workload, n) for arm in results.arms for workload in group for n in levels]
    marks = ["*: best fixed K at this level."] * bool(results.fixed)
    marks += [_DISTURBED] * any(_disturbed(results, *cell) for cell in shown)
    speeds = table("tokens/s", speed, " ".join(marks))
    gains = table(f"speedup over {reference}", partial(over, [reference]), _NOISE, is_of_drafts=True)
    acceptance = table("draft tokens per request and step (acceptance length)", drafts, is_of_drafts=True)
    yield from (speeds, gains) if len(group) == 1 else (gains, acceptance, speeds)
    for name, arms in ((_FASTEST, results.stock), ("the best fixed K", results.fixed)):
        if arms:
            yield table(f"speedup over {name}", partial(over, arms), _NOISE)
    if len(group) == 1 and group[0] != FIRST_PASS:
        yield acceptance
    which = "/".join(f"p{percentile}" for percentile in PERCENTILES)
    for name in LATENCIES[: 1 if group[0] == FIRST_PASS else None]:
        if any(values.spread(*cell, f"{name}_p50") for cell in shown):
            yield table(f"{_NAMES[name]}, ms ({which})", partial(milliseconds, name))
    if any(key in results.agreements for key in shown):
        yield table(f"greedy outputs beside those of {reference}", greedy, is_of_drafts=True)


def _charts(results: SweepResults) -> Iterator[Chart]:
    """Yields speedup and time per token by workload; of several categories the mean speedup."""
    values, reference = results.measurements, results.reference
    for group in _groups(results):
        levels, [workload, *others] = results.levels[group[0]], group
        if workload in (FIRST_PASS, SWITCHING):
            continue
        speedups, times = [], []
        for arm in results.arms:
            role: Any = {reference: "reference", OPTIMAL: "main"}.get(arm, "other")
            pairs = {n: [(arm, reference, own, n) for own in group] for n in levels}
            speedups.append(Line(arm, {n: values.mean_ratio(own, _SPEED) for n, own in pairs.items()}, role))
            tpots = {n: values.spread(arm, workload, n, "tpot_p50") for n in levels}
            scaled = {n: one and Spread(1e3 * one.median, 1e3 * one.low, 1e3 * one.high) for n, one in tpots.items()}
            times.append(Line(arm, scaled, role))
        title = f"mean over {_name(group)}" if others else TITLES.get(workload, workload)
        yield Chart(f"throughput, {title}", "concurrent streams", f"tokens/s over {reference}", speedups)
        if not others:
            yield Chart(f"time per output token, {title}", "concurrent streams", "TPOT, ms", times)


def _preemptions(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Says in which of `_cells` the KV cache was too small for all streams."""
    found = [
        f"{cell['workload']}, {plural(cell['streams'], 'stream')}, {cell['arm']}: {cell['preemptions']:.0f}"
        for cell in cells
        if cell["preemptions"]
    ]
    if found:
        yield (
            "The KV cache was too small for all streams: vLLM preempted requests and computed them again, and arms "
            "with less room, such as those of a draft model, look slower. Preemptions: "
            f"{'; '.join(found)}. Give the engines more memory (`-- --kv-cache-memory-bytes N`), or measure fewer "
            "streams."
        )


def _notes(results: SweepResults) -> Iterator[str]:
    yield (
        "Closed loop: each level keeps that number of requests in flight. Tokens and time count from when each stream "
        "has its first token; later prompts are in the time. Before it, each arm ran the level in short. Medians of "
        "the rounds, with their range in brackets; ratios are taken round by round. vLLM's fastest arm is chosen by "
        "the same rounds, which favours it."
    )
    yield (
        "Within noise: the 95% confidence interval (Student's, of the logarithms of the rounds' ratios) includes 1; "
        "fewer than seven rounds show large gains only. Acceptance length: 1 + accepted draft tokens / drafts. TTFT: "
        "time to first token. TPOT: time per output token after the first. Latency: from sending a request to its last "
        "token. Percentiles are over the requests of a round (p99 of fewer than 100 is near their maximum), medians of "
        "the rounds. Greedy outputs are compared up to the shorter one. Tied: they part at two tokens of equal "
        "probability."
    )
    if any(workload not in TITLES for workload in results.levels):
        yield (
            "A prompt comes again where its category has fewer than streams times rounds: proposers that keep "
            "responses (`shared`) know it then."
        )
    if FIRST_PASS in results.levels:
        yield (
            f"equal: all requests are sent at once, {PASSES} times the same in each process. Figures are of the median "
            f"of the last {WARM_PASSES} passes, prompts included, and of the first pass, without a warm-up."
        )
    if SWITCHING in results.levels:
        yield "switching: all streams turn at once, with a new request each."
