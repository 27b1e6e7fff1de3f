"""Tables of a real model's results with a column per category of prompts, for `benchmarks.figures`."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_spec_tools.report import Chart, Line, Measurements, Ratio, show_percentiles, show_spread
from vllm_spec_tools.report.provenance import machine_text
from vllm_spec_tools.report.table import markdown_table

Run = Mapping[str, Any]
_SPEED = "tokens_per_second"
# In the name of an arm, what the page says once.
_SAID = ", suffix_decoding_max_cached_requests = 0"


def measured(runs: Iterable[Run]) -> Measurements:
    """Returns the measurements of runs; of equal arms, workloads, levels and rounds the last one's."""
    values = Measurements()
    for row in (row for run in runs for row in run.get("measurements", ())):
        values.add(row["arm"], row["workload"], row["level"], row["round"], {row["metric"]: row["value"]})
    return values


def by_category(runs: Sequence[Run]) -> str:
    """Returns tokens per second over no speculation in the same run, and their mean; the fastest arm is bold."""
    categories = _categories(runs)
    mean = [] if len(categories) == 1 else ["mean"]
    found = {arm: _ratios(run, arm, categories)[1 - len(mean) :] for run in runs for arm in run["arms"][1:]}
    fastest = [max(found, key=lambda arm: found[arm][column].median) for column in range(len(mean) + len(categories))]
    rounds = sorted({cell["rounds"] for run in runs for cell in run["cells"]})
    rows = [[f"over no speculation, {' or '.join(map(str, rounds))} rounds", *mean, *categories]]
    reference = _cells(runs[0], runs[0]["arms"][0])
    rows.append(
        [
            "no speculation, tokens/s",
            *([""] * len(mean)),
            *(f"{reference[one][_SPEED]['median']:.0f}" for one in categories),
        ]
    )
    for arm, ratios in found.items():
        shown = [_shown(ratio, is_fastest=arm == fastest[column]) for column, ratio in enumerate(ratios)]
        rows.append([_name(arm), *shown])
    return markdown_table(rows).replace(r"\*\*", "**")


def by_cell(runs: Sequence[Run]) -> str:
    """Returns the mean over categories per temperature and number of streams; the fastest arm is bold."""
    found = _mean_ratios(runs)
    columns = sorted({column for ratios in found.values() for column in ratios})
    fastest = {column: max(r[column].median for r in found.values() if column in r) for column in columns}
    rows = [["temperature, streams", *(f"{temperature}, {streams}" for temperature, streams in columns)]]
    for arm, ratios in found.items():
        shown = [
            _shown(ratios[column], is_fastest=ratios[column].median == fastest[column]) if column in ratios else "-"
            for column in columns
        ]
        rows.append([arm, *shown])
    return markdown_table(rows).replace(r"\*\*", "**")


def lengths(runs: Sequence[Run]) -> str:
    """Returns the mean acceptance length, with draft tokens per request and step."""
    categories = _categories(runs)

    def show(cell: Mapping[str, Any]) -> str:
        length = cell["acceptance_length"]
        return "-" if length is None else f"{length:.2f} ({cell['draft_length']:.2f})"

    arms = [(_name(arm), _cells(run, arm)) for run in runs for arm in run["arms"][1:]]
    rows = [[name, *(show(cells[category]) for category in categories)] for name, cells in arms]
    return markdown_table([["acceptance length (drafted)", *categories], *rows])


def latencies(runs: Sequence[Run]) -> str:
    """Returns p50 and p95 of TTFT and TPOT, the median over categories, per number of streams."""
    levels = sorted({cell["streams"] for run in runs for cell in run["cells"]})
    rows = [["p50/p95, ms", *(f"{name}, {level}" for name in ("TTFT", "TPOT") for level in levels)]]
    by_arm: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for run in runs:
        for arm in run["arms"]:
            cells = list(_cells(run, arm).values())
            by_arm.setdefault(arm, {}).setdefault(cells[0]["streams"], cells)
    for arm, by_level in by_arm.items():
        row = [_name(arm)]
        for name in ("ttft", "tpot"):
            for level in levels:
                shares = [[cell[name][share] for cell in by_level.get(level, ())] for share in ("p50", "p95")]
                row.append(show_percentiles(map(_median, shares)))
        rows.append(row)
    return markdown_table(rows)


def means(runs: Sequence[Run]) -> list[Chart]:
    """Returns a chart per temperature: the mean over categories of the throughput over no speculation, by streams."""
    by_temperature: dict[str, dict[str, dict[int, Ratio]]] = {}
    for arm, ratios in _mean_ratios(runs).items():
        for (temperature, level), ratio in ratios.items():
            by_temperature.setdefault(temperature, {}).setdefault(arm, {})[level] = ratio
    charts = []
    for temperature, lines in sorted(by_temperature.items()):
        levels = sorted({level for points in lines.values() for level in points})
        none = Line("no speculation", dict.fromkeys(levels, 1.0), "reference")
        drawn = [none, *(Line(name, dict(sorted(points.items()))) for name, points in lines.items())]
        charts.append(Chart(f"temperature {temperature}", "concurrent streams", "tokens/s over no speculation", drawn))
    return charts


def origins(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Returns where and when each file's run was measured, and how many arms' rounds others disturbed.

    Preemptions are `-` in files that do not count them.
    """
    rows = [["cell", "machine", "day", "commit", "rounds of an arm", "of which disturbed", "preemptions"]]
    for name, run in zip(names, runs, strict=True):
        origin = run["provenance"]
        total, disturbed = (sum(cell[key] for cell in run["cells"]) for key in ("rounds", "disturbed_rounds"))
        where = [machine_text(origin, short=True), origin["date"][:10], origin["commit"][:9]]
        counts = [cell["preemptions"] for cell in run["cells"] if "preemptions" in cell]
        shown = [str(total), str(disturbed), f"{sum(counts):.0f}" if counts else "-"]
        rows.append([name.rpartition("/")[2].removesuffix(".json"), *where, *shown])
    return markdown_table(rows)


def _mean_ratios(runs: Sequence[Run]) -> dict[str, dict[tuple[str, int], Ratio]]:
    """Returns by arm, then by temperature and number of streams, the mean over categories."""
    found: dict[str, dict[tuple[str, int], Ratio]] = {}
    for run in runs:
        arguments, streams = run["provenance"]["arguments"], run["cells"][0]["streams"]
        temperature = arguments[arguments.index("--prompt-temperature") + 1]
        for arm in run["arms"][1:]:
            found.setdefault(_name(arm), {})[temperature, streams] = _ratios(run, arm, _categories([run]))[0]
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _ratios(run: Run, arm: str, categories: Sequence[str]) -> list[Ratio]:
    """Returns the geometric mean over categories, then each category."""
    values, reference, level = measured([run]), run["arms"][0], run["cells"][0]["streams"]
    mean = values.mean_ratio([(arm, reference, category, level) for category in categories], _SPEED)
    own = [values.ratio(arm, reference, category, level, _SPEED) for category in categories]
    return [ratio for ratio in (mean, *own) if ratio is not None]


def _shown(ratio: Ratio, *, is_fastest: bool) -> str:
    median, *spread = show_spread(ratio).split(" ")
    text = " ".join([f"**{median}**" if is_fastest else median, *spread])
    return text + " ~" * (ratio.differs is False)


def _categories(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(cell["workload"] for run in runs for cell in run["cells"]))


def _cells(run: Run, arm: str) -> dict[str, Mapping[str, Any]]:
    return {cell["workload"]: cell for cell in run["cells"] if cell["arm"] == arm}


def _name(arm: str) -> str:
    return arm.replace(_SAID, "")
