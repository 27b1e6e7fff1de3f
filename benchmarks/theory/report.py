"""Reports of the formulas: the best K in a sentence, tables, and curves after Figures 2 to 4 of the paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from benchmarks.theory import paper
from benchmarks.theory.leviathan import (
    LARGEST_GAIN,
    best_draft_length,
    expected_tokens,
    operations_factor,
    speedup,
)
from benchmarks.theory.study import Best, Cell
from vllm_spec_tools.report import Chart, Line, Measurements, Report, Table

_T = TypeVar("_T")

_TITLE = "Speculative decoding by the formulas of Leviathan et al. (2023)"
_NOTE = (
    "Every draft token is taken to be accepted with probability alpha if the one before it was; accepted over drafted "
    "tokens is less than that, since those behind a rejected one count as drafted. Verifying K + 1 "
    "tokens is taken to cost the target no more than computing one{exception}. The c of a machine and what verifying "
    "costs it: vllm-spec plan."
)
_PAPER_NOTE = (
    "EXP, EMP: as printed, by theorem 3.8 and measured on a TPU. From, to: theorem 3.8 for what alpha and c may have "
    "been before they were rounded to two decimals."
)
_RATES = [number / 200 for number in range(201)]
_HIGHEST_BEST = 30  # best draft lengths grow without end towards alpha = 1
_CURVES = 5  # of a panel; more are hard to tell apart
_LENGTHS, _ALPHA = "K, draft tokens per step", "alpha, acceptance rate"


def study_report(
    cells: Sequence[Cell], rates: Sequence[float], costs: Sequence[float], origin: Mapping[str, Any]
) -> Report:
    """Makes the report of acceptance rates and cost ratios.

    Args:
        cells: at least one, all with the same draft lengths.
        rates: acceptance rates whose curves are drawn.
        costs: cost ratios whose curves of best draft lengths are drawn.
        origin: what `provenance` gives.
    """
    lengths = [row.draft_length for row in cells[0].rows]
    measured = Measurements()
    for cell in cells:
        for row in cell.rows:
            values = asdict(row)
            del values["draft_length"]
            measured.add("computed", _place(cell), row.draft_length, 0, values)
    return Report(
        "theory",
        _TITLE,
        origin,
        [f"{_place(cell)}: {_sentence(cell)}" for cell in cells],
        list(map(_table, cells)),
        _charts(rates, costs, lengths, cells[0].cost_ratio, cells[0].operations_ratio),
        [_NOTE.format(exception=', but for "verify counted"' if cells[0].best_verified else "")],
        measurements=measured,
        data={"cells": [asdict(cell) for cell in cells]},
    )


def paper_report(origin: Mapping[str, Any]) -> Report:
    """Makes the report of Tables 1 and 4, Figure 3 and section 3.5's oracle."""
    measured = Measurements()
    table_1 = []
    for row in paper.TABLE_1:
        operations, speed = paper.computed(row)
        place = f"Table 1, alpha {row.acceptance_rate:g}", row.draft_length
        measured.add("paper", *place, 0, {"operations": row.operations, "speedup": row.speed})
        measured.add("computed", *place, 0, {"operations": operations, "speedup": speed})
        figures = f"{row.operations:.2f}x", f"{operations:.4f}x", f"{row.speed:.2f}x", f"{speed:.4f}x"
        table_1.append([f"{row.acceptance_rate:g}", str(row.draft_length), *figures])
    table_4 = []
    for trial in paper.TABLE_4:
        least, computed, most = paper.computed_range(trial)
        what = [trial.task, trial.draft, str(trial.temperature)]
        place = f"Table 4, {' '.join(what)}", trial.draft_length
        measured.add("paper", *place, 0, {"speedup": trial.expected, "measured speedup": trial.measured})
        measured.add("computed", *place, 0, {"speedup": computed, "least speedup": least, "most speedup": most})
        given = [str(trial.draft_length), f"{trial.acceptance_rate:.2f}", f"{trial.cost_ratio:.2f}"]
        speeds = (f"{value:.2f}x" for value in (computed, least, most))
        table_4.append([*what, *given, f"{trial.expected:.1f}x", *speeds, f"{trial.measured:.1f}x"])
    best = paper.figure_3()
    for cost, lengths in zip(paper.FIGURE_3_COSTS, best, strict=True):
        for rate, length in zip(paper.FIGURE_3_RATES, lengths, strict=True):
            measured.add("computed", f"Figure 3, c {cost:g}", rate, 0, {"best draft length": length})
    oracle = []
    for cost, rate, gain in paper.largest_gains():
        measured.add("computed", "section 3.5", cost, 0, {"worst acceptance rate": rate, "gain": gain})
        oracle.append([f"{cost:g}", f"{rate:.3f}", f"{gain - 1:.1%}"])
    oracle += [["to 0", "to 1", f"{LARGEST_GAIN - 1:.1%}"], ["paper", "", "up to ~60%"]]
    header_1 = ["alpha", "K", "operations: paper", "operations: computed", "speed: paper", "speed: computed"]
    header_4 = ["task", "draft", "T", "K", "alpha", "c", "EXP", "computed", "from", "to", "EMP"]
    header_3 = ["alpha", *(f"c {cost:g}" for cost in paper.FIGURE_3_COSTS)]
    figure_3 = [[f"{rate:g}", *map(str, row)] for rate, *row in zip(paper.FIGURE_3_RATES, *best, strict=True)]
    return Report(
        "theory --paper",
        _TITLE,
        origin,
        ["All twelve figures of Table 1 come out to their two decimals, Table 4's within the rounding of its inputs."],
        [
            Table("Table 1: operations and speed for c = c_hat = 0", header_1, table_1, text_columns=0),
            Table("Figure 3: the best K", header_3, figure_3, text_columns=0),
            Table(
                "Section 3.5: an oracle for K",
                ["c", "worst alpha for a fixed K", "gain over the best fixed K"],
                oracle,
                text_columns=0,
            ),
            Table("Table 4: theorem 3.8 and the paper's experiments", header_4, table_4, text_columns=2),
        ],
        _charts(
            sorted({row.acceptance_rate for row in paper.TABLE_1}),
            paper.FIGURE_3_COSTS,
            sorted({row.draft_length for row in paper.TABLE_1}),
            0.0,
            0.0,
        ),
        [_PAPER_NOTE],
        measurements=measured,
    )


def _place(cell: Cell) -> str:
    return f"alpha {cell.acceptance_rate:g}, c {cell.cost_ratio:g}"


def _table(cell: Cell) -> Table:
    """One acceptance rate and cost ratio, a row per K."""
    header = ["K", "tokens/step", "speedup", "operations", *(["verify counted"] if cell.best_verified else [])]
    rows = []
    for row in cell.rows:
        times = [row.speedup, row.operations, *([] if row.speedup_verified is None else [row.speedup_verified])]
        rows.append([str(row.draft_length), f"{row.expected_tokens:.2f}", *map(_times, times)])
    return Table(f"{_place(cell)}, c_hat {cell.operations_ratio:g}", header, rows, text_columns=0)


def _sentence(cell: Cell) -> str:
    """The best K of a cell, and its limit."""
    best, limit = cell.best, _times(cell.oracle_speedup)
    if best.draft_length == 0:
        text = f"best K: 0; drafting does not pay unless alpha is above c. An oracle for K would gain {limit}."
    elif best.draft_length is None:
        text = f"there is no best K: longer is faster, {limit if best.speedup is None else f'up to {limit}'}."
    else:
        text = (
            f"best K: {_best(best)}. At least {cell.guaranteed_speedup:.2f}x by corollary 3.9; "
            f"an oracle that chose the best K in each step: {limit}."
        )
    if cell.best_verified is not None:
        text += f" With what verifying costs, of all K that it is given for: {_best(cell.best_verified)}."
    return text


def _best(best: Best) -> str:
    return f"{best.draft_length}, {_times(best.speedup)}"


def _times(value: float | None) -> str:
    return "without limit" if value is None else f"{value:.2f}x"


def _charts(
    rates: Sequence[float], costs: Sequence[float], lengths: Sequence[int], cost: float, operations_ratio: float
) -> list[Chart]:
    best = []
    for ratio in _some(costs):
        found = ((rate, best_draft_length(rate, ratio)) for rate in _RATES) if ratio else ()
        points: dict[float, float] = {x: y for x, y in found if y is not None and y <= _HIGHEST_BEST}
        best.append(Line(f"c = {ratio:g}" if ratio else "c = 0: the longer, the faster", points))
    longest = range(max(1, *lengths, 0) + 1)
    tokens = [
        Line(f"alpha = {rate:g}", {float(length): expected_tokens(rate, length) for length in longest})
        for rate in sorted(_some(rates), reverse=True)
    ]

    def by_length(value: Callable[[float, int], float]) -> list[Line]:
        curves = [
            Line(f"K = {length}", {rate: value(rate, length) for rate in _RATES})
            for length in sorted(_some(lengths), reverse=True)
        ]
        return [Line("no speculation", {0.0: 1.0, 1.0: 1.0}, "reference"), *curves]

    speedups = by_length(lambda rate, length: speedup(rate, length, cost))
    operations = by_length(lambda rate, length: operations_factor(rate, length, operations_ratio))
    titles = f"Speedup for c = {cost:g} (theorem 3.8)", f"Operations for c_hat = {operations_ratio:g} (theorem 3.11)"
    times = "time without / time with speculation", "operations with / without speculation"
    return [
        Chart("Best draft length (Figure 3)", _ALPHA, _LENGTHS, best, has_levels=False),
        Chart("Expected tokens (equation 1)", _LENGTHS, "output tokens per target step", tokens, has_levels=False),
        Chart(titles[0], _ALPHA, times[0], speedups, has_levels=False),
        Chart(titles[1], _ALPHA, times[1], operations, has_levels=False),
    ]


def _some(values: Sequence[_T]) -> list[_T]:
    """Returns all values, or `_CURVES` of them at equal distances with the first and the last."""
    if len(values) <= _CURVES:
        return list(values)
    return [values[round(number * (len(values) - 1) / (_CURVES - 1))] for number in range(_CURVES)]
