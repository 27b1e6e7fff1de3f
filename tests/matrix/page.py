"""Writes the tables of docs/support.md, from the results of the matrix and from the gates' own."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.assemble import ADDED
from tests.marked import fill
from tests.matrix import native
from tests.matrix.cells import COLUMNS, EXACT, REFUSED, ROWS, is_optimal
from tests.ways import page as ways
from vllm_spec_plugin.gate.rules import RULES, SERVED_LAYERS

_DOCS = Path(__file__).parents[2] / "docs"
PAGE, RESULTS = _DOCS / "support.md", _DOCS / "support.json"
# What was run of each layout; what is refused of it, the gate says.
_RUN_LAYOUTS = {
    "--tensor-parallel-size": "two CPU ranks; on V2 with suffix and Medusa chains: tests/engine/test_parallel.py",
    "--data-parallel-size": "two replicas behind one endpoint: tests/e2e/test_data_parallel.py",
    "--pipeline-parallel-size": "two stages on V2 with suffix: tests/engine/test_parallel.py",
    "--decode-context-parallel-size": "",
    "--prefill-context-parallel-size": "",
}
_RUN = "- vLLM {vllm}: {dates}, {seconds:.0f} s of one core in all, on {cores} of {cpu}. Versions: {versions}."
_ASSEMBLED = " It has no CPU build: its Python ran with the libraries of an older one."


# Titles of both tables' columns.
_OWN = {name: title for name, (title, _) in COLUMNS.items()}
_NATIVE = {name: column.title for name, column in native.COLUMNS.items()}


def release() -> str:
    """The installed vLLM's version, by which results are kept."""
    return version("vllm").partition("+")[0]


def minor(release: str) -> str:
    """A version as the page names it: "0.33" of "0.33.0"."""
    return release.rpartition(".")[0]


def with_tables(page: str, results: Mapping[str, Any]) -> str:
    """The text of the page with the tables of these results.

    Args:
        page: the page as it is.
        results: what `make matrix` wrote, by the version of vLLM.
    """
    verdicts = [{cell["verdict"] for cell in _by_version(results, *key).values()} for key in _keys(results, _OWN)]
    count = {verdict: verdicts.count({verdict}) for verdict in (EXACT, REFUSED)}
    notes: dict[str, int] = {}
    counted = [
        f"Of the {len(verdicts)} cells of this table, {count[EXACT]} are exact and {count[REFUSED]} refused, on",
        f"vLLM {' and '.join(map(minor, results))}; {len(verdicts) - sum(count.values())} have another result, "
        "or differ between versions.",
    ]
    parts = {"models": [*counted, "", *_table(results, _OWN, notes)], "drafters": _table(results, _NATIVE, notes)}
    parts["notes"] = [f"{number}. {note}" for note, number in notes.items()]
    parts |= {"trees": [_trees(results)], "runs": _runs(results), "layouts": _layouts()}
    return fill(page, parts | {"rules": ways.lines(), "settings": _settings()})


def _keys(results: Mapping[str, Any], columns: Iterable[str]) -> list[tuple[str, str]]:
    """Rows and columns of all cells of a table that were run."""
    run = {(name, column) for each in results.values() for name, row in each["rows"].items() for column in row["cells"]}
    return [(name, column) for name in ROWS for column in columns if (name, column) in run]


def _by_version(results: Mapping[str, Any], name: str, column: str) -> dict[str, Mapping[str, Any]]:
    """A cell on each version that it was run on."""
    cells = {minor(vllm): run["rows"].get(name, {}).get("cells", {}).get(column) for vllm, run in results.items()}
    return {vllm: cell for vllm, cell in cells.items() if cell}


def _trees(results: Mapping[str, Any]) -> str:
    """On which targets trees were tested."""
    trees = {ROWS[name].title: _by_version(results, name, "tree").values() for name in ROWS}
    exact = [title for title, cells in trees.items() if {cell["verdict"] for cell in cells} == {EXACT}]
    return f"Trees were tested on {', '.join(exact)} and the bundled target (Llama)."


def _table(results: Mapping[str, Any], titles: Mapping[str, str], notes: dict[str, int]) -> list[str]:
    lines = [f"| target | {' | '.join(titles.values())} |", "|---|" + "---|" * len(titles)]
    for name in dict.fromkeys(name for name, _ in _keys(results, titles)):
        cells = [_cell(_by_version(results, name, column), column, len(results), notes) for column in titles]
        lines.append(f"| {ROWS[name].title} | {' | '.join(cells)} |")
    return lines


def _cell(cells: Mapping[str, Mapping[str, Any]], column: str, num_versions: int, notes: dict[str, int]) -> str:
    """A cell's text; with versions, unless it is the same on all."""
    texts: dict[str, list[str]] = {}
    for its, cell in cells.items():
        texts.setdefault(_text(cell, column, notes), []).append(its)
    if [len(versions) for versions in texts.values()] == [num_versions]:
        return next(iter(texts))
    return "<br>".join(f"{', '.join(versions)}: {text}" for text, versions in texts.items())


def _text(cell: Mapping[str, Any], column: str, notes: dict[str, int]) -> str:
    if cell["verdict"] == EXACT:
        return EXACT if is_optimal(column) else f"exact ({cell['accepted']}, {cell['rejected']})"
    numbers = [notes.setdefault(_note(reason), len(notes) + 1) for reason in cell["reasons"]]
    return f"{cell['verdict']} ({', '.join(map(str, numbers))})"


def _note(reason: str) -> str:
    subject, _, text = reason.partition(": ")
    return f"`{subject}`: {text}" if text else reason


def _runs(results: Mapping[str, Any]) -> list[str]:
    lines = []
    for vllm, run in results.items():
        dates = sorted({row["date"] for row in run["rows"].values()})
        line = _RUN.format(
            vllm=vllm,
            dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))),
            seconds=sum(row["seconds"] for row in run["rows"].values()),
            cpu=run["machine"]["cpu"],
            cores="1 core" if run["machine"]["cores"] == 1 else f"{run['machine']['cores']} cores",
            versions=", ".join(f"{name} {its}" for name, its in run["versions"].items() if name != "vllm"),
        )
        lines.append(line + _ASSEMBLED * (vllm in ADDED))
    return lines


def _layouts() -> list[str]:
    lines = ["| flag | served | tested |", "|---|---|---|"]
    for flag, run in _RUN_LAYOUTS.items():
        served: dict[str, list[str]] = {}
        for rule in RULES:
            if rule.subject == flag:
                served.setdefault(rule.allowed, []).append(rule.scope.name)
        shown = "; ".join(f"{', '.join(what)}: {allowed}" for allowed, what in served.items())
        lines.append(f"| `{flag}` | {shown or 'any'} | {run} |")
    return lines


def _settings() -> list[str]:
    lines = ["| key or flag | for | must be | since otherwise |", "|---|---|---|---|"]
    for rule in RULES:
        # Kinds of layers are the table above.
        if rule.allowed != SERVED_LAYERS:
            lines.append(f"| `{rule.subject}` | {rule.scope.name} | {rule.allowed} | {rule.reason} |")
    return lines
