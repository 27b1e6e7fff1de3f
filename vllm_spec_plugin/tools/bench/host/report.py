"""The report of the host-time benchmark."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from vllm_spec_plugin.tools.bench.host.comparison import TARGETS, Cell, cell_text
from vllm_spec_plugin.tools.bench.host.parts import PARTS
from vllm_spec_plugin.tools.bench.rounds import Results
from vllm_spec_plugin.tools.report import Report, Spread, StackedBars, Table, matrix, show_spread

_NOTES = (
    "Medians of steady decoding steps, then of the rounds, ± half the distance of the quartiles. CPU: time of the "
    "engine's thread. Host: CPU time of a step without the passes of the target (forward) and the draft model.",
    "A part excludes those inside it. Schedule and bookkeeping: the scheduler's and the runner's. Draft lengths: "
    "choosing them. Messages: between scheduler and worker, with the executor. Inputs: the batch's, with attention "
    "metadata. Views: the proposer's input. Frontend: handing outputs out. Part timers add up to 0.1 ms a step; host "
    "times and whole steps are measured without them.",
    "The text is scripted: three of four draft tokens are accepted. It repeats itself in arms that draft by n-gram, "
    "and never in others.",
)


def report_of(results: Results[Cell], provenance: Mapping[str, Any], rounds: int) -> Report:
    """Makes the report.

    Args:
        results: of the benchmark.
        provenance: what `provenance.provenance` gives, and more.
        rounds: requested number of rounds.
    """
    return results.report(
        "bench host",
        "Host time of a decode step",
        provenance,
        rounds,
        conclusion=list(_conclusion(results)),
        tables=list(_tables(results)),
        charts=list(_charts(results)),
        notes=_NOTES,
    )


def _conclusion(results: Results[Cell]) -> Iterator[str]:
    """Yields what each arm adds at the highest level."""
    none, (is_computed, level) = results.arms[0], results.cells[-1]
    for arm in results.arms[1:]:
        added = results.measurements.difference(arm, none, TARGETS[is_computed], level, "host")
        yield f"{arm} adds {_signed(added)} ms of host time a step to {none} ({cell_text((is_computed, level))})."


def _tables(results: Results[Cell]) -> Iterator[Table]:
    values, none = results.measurements, results.arms[0]
    for is_computed in dict.fromkeys(cell[0] for cell in results.cells):
        target, levels = TARGETS[is_computed], [level for computed, level in results.cells if computed == is_computed]
        columns = [str(level) for level in levels]

        def host(arm: str, i: int, target: str = target, levels: list[int] = levels) -> str:
            if arm == none:
                return show_spread(values.spread(none, target, levels[i], "host"), 1e3)
            return _signed(values.difference(arm, none, target, levels[i], "host"))

        def whole(clock: str, arm: str, i: int, target: str = target, levels: list[int] = levels) -> str:
            return show_spread(values.spread(arm, target, levels[i], clock), 1e3)

        yield matrix(
            f"Host time per step by requests, ms: of {none}, and what others add; {target}", results.arms, columns, host
        )
        whole_step, drafting = "Whole step by requests", "Proposer, its input and its draft model by requests"
        for metric, name in (
            ("cpu", f"{whole_step}, CPU time"),
            ("wall", f"{whole_step}, wall time"),
            ("drafting", f"{drafting}, wall time"),
        ):
            yield matrix(f"{name}, ms; {target}", results.arms, columns, partial(whole, metric))
        for level in levels:
            parts = [(part, f"cpu, {part}", 1e3, 2) for part in PARTS]
            parts += [("drafted per request", "draft_tokens", 1, 1), ("output per request", "output_tokens", 1, 1)]
            rows = []
            for name, metric, factor, digits in parts:
                medians = (values.median(arm, target, level, metric) or 0.0 for arm in results.arms)
                rows.append([name, *(f"{factor * median:.{digits}f}" for median in medians)])
            yield Table(
                f"CPU time per step by part, ms; {cell_text((is_computed, level))}", ["part", *results.arms], rows
            )


def _charts(results: Results[Cell]) -> Iterator[StackedBars]:
    for is_computed, level in results.cells:
        parts = {
            part: {
                arm: 1e3 * (results.measurements.median(arm, TARGETS[is_computed], level, f"cpu, {part}") or 0.0)
                for arm in results.arms
            }
            for part in PARTS
        }
        yield StackedBars(cell_text((is_computed, level)), "CPU time per step, ms", parts)


def _signed(spread: Spread | None) -> str:
    """Formats a difference in ms with its spread in ms: a share of a difference near zero is meaningless."""
    if spread is None:
        return "-"
    return f"{1e3 * spread.median:+.2f}" + (f" ±{1e3 * spread.half:.2f}" if spread.half else "")
