"""Reports of replayed throughput and of ablations."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.tools.bench.arms import NONE, OPTIMAL
from vllm_spec_plugin.tools.bench.load.workloads import TITLES
from vllm_spec_plugin.tools.bench.replay.settings import FIRST_STEPS, OFF
from vllm_spec_plugin.tools.bench.replay.traces import EDIT
from vllm_spec_plugin.tools.report import Chart, Line, Measurements, Report, Table

_SPEED, _FIRST = "tokens_per_second", "first_tokens_per_second"


def rates_report(measured: Mapping[str, Measurements], provenance: Mapping[str, Any]) -> Report:
    """Makes the report of throughput, a table and charts per recording.

    Args:
        measured: metrics of `settings.replay` by recording; rounds are seeds.
        provenance: what `provenance.provenance` gives.
    """
    found = Measurements(row for one in measured.values() for row in one.rows())
    return Report(
        "bench replay",
        "Replayed throughput of policy optimal",
        provenance,
        [sentence for title, one in measured.items() for sentence in _conclusion(title, one)],
        [_rates_table(title, one) for title, one in measured.items()],
        [chart for title, one in measured.items() for chart in _charts(title, one)],
        [
            f"Medians over seeds; ratios are taken seed by seed. fixed K = 0: the plugin with nothing drafted. first "
            f"{FIRST_STEPS}: the first steps of a server. best: the best fixed draft length. / METHOD: over optimal "
            "with that proposer alone. drafted: verified draft tokens per request and step."
        ],
        measurements=found,
    )


def gains_report(measured: Mapping[str, Measurements], provenance: Mapping[str, Any]) -> Report:
    """Makes the report of what each mechanism gains.

    Args:
        measured: the metric "gain" by recording, an arm per mechanism, rounds being seeds.
        provenance: what `provenance.provenance` gives.
    """
    tables, conclusion = [], []
    for title, one in measured.items():
        table = _gains_table(title, one)
        tables.append(table)
        useful = [row[0] for row in table.rows if float(row[-1]) > 0]
        conclusion.append(f"{title}: {', '.join(useful) or 'no mechanism'} gains beyond two standard errors.")
    return Report(
        "bench replay",
        "Gain of each mechanism of policy optimal",
        provenance,
        conclusion,
        tables,
        notes=[
            "Throughput with the mechanism over that without it, less 1, in percent: mean over seeds ± its standard "
            "error. surely: the most that it gains beyond two standard errors, in any setting."
        ],
        measurements=Measurements(row for one in measured.values() for row in one.rows()),
    )


def _cells(one: Measurements) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row.workload, row.level) for row in one.rows()))


def _arms(one: Measurements) -> list[str]:
    return list(dict.fromkeys(row.arm for row in one.rows()))


def _best(one: Measurements, cell: tuple[str, float]) -> str:
    fixed = [arm for arm in _arms(one) if arm.startswith("fixed K") and arm != OFF]
    return max(fixed, key=lambda arm: one.median(arm, *cell, _SPEED) or 0.0)


def _over(one: Measurements, arm: str, other: str, cell: tuple[str, float], metric: str = _SPEED) -> str:
    spread = one.ratio(arm, other, *cell, metric)
    return "-" if spread is None else f"{spread.median:.2f}"


def _rates_table(title: str, one: Measurements) -> Table:
    members = [arm for arm in _arms(one) if arm.startswith(f"{OPTIMAL}, ")]
    alone = [f"/ {arm.removeprefix(f'{OPTIMAL}, ')}" for arm in members]
    rows = []
    for cell in _cells(one):
        best = _best(one, cell)
        rows.append(
            [
                f"{cell[0].rpartition(': ')[2]}, {cell[1]}",
                best.removeprefix("fixed "),
                f"{one.median(NONE, *cell, _SPEED):.0f}",
                _over(one, OFF, NONE, cell),
                _over(one, OPTIMAL, NONE, cell),
                _over(one, OPTIMAL, NONE, cell, _FIRST),
                _over(one, OPTIMAL, best, cell),
                *(_over(one, OPTIMAL, arm, cell) for arm in members),
                f"{(one.median(OPTIMAL, *cell, 'draft_tokens') or 0.0) / cell[1]:.1f}",
            ]
        )
    header = ["streams", "best", "none, tok/s", "K = 0 / none", "/ none", f"first {FIRST_STEPS}", "/ best"]
    return Table(title, [*header, *alone, "drafted"], rows, text_columns=2)


def _gains_table(title: str, one: Measurements) -> Table:
    cells = _cells(one)
    rows = []
    for arm in _arms(one):
        shown, sure = [], 0.0
        for cell in cells:
            gains = list(one.rounds(arm, *cell, "gain").values())
            mean = statistics.fmean(gains)
            error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
            shown.append(f"{100 * mean:+.1f} ± {100 * error:.1f}")
            sure = max(sure, mean - 2 * error)
        rows.append([arm, *shown, f"{100 * sure:.1f}"])
    settings = [f"{workload.rpartition(': ')[2]}, {streams}" for workload, streams in cells]
    return Table(title, ["mechanism", *settings, "surely"], rows)


def _conclusion(title: str, one: Measurements) -> Iterator[str]:
    for other in (NONE, "the best fixed draft length"):
        ratios = []
        for cell in _cells(one):
            spread = one.ratio(OPTIMAL, other if other == NONE else _best(one, cell), *cell, _SPEED)
            assert spread is not None
            ratios.append(spread.median)
        yield f"{title}: optimal is at {min(ratios):.2f} to {max(ratios):.2f} of {other}."


def _charts(title: str, one: Measurements) -> Iterator[Chart]:
    """Yields throughput over no speculation by streams, per workload."""
    levels: dict[str, list[float]] = {}
    for workload, streams in _cells(one):
        levels.setdefault(workload, []).append(streams)
    # Arms of single proposers are in the table only: a dozen lines cannot be distinguished.
    arms: Sequence[str] = [arm for arm in _arms(one) if ", " not in arm]
    for workload, numbers in levels.items():
        lines = [
            Line(
                arm,
                {n: one.ratio(arm, NONE, workload, n, _SPEED) for n in numbers},
                "reference" if arm == NONE else "main" if arm == OPTIMAL else "other",
            )
            for arm in arms
        ]
        kind = (TITLES | {EDIT: "repeated prompts (edit)"})[workload.rpartition(": ")[2]]
        yield Chart(f"target {title}; {kind}", "concurrent streams", f"tokens/s over {NONE}", lines)
