"""Writes the tables of docs/v2.md from the results of `make v2`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.v2.drafters import DRAFTERS
from tests.marked import fill

_DOCS = Path(__file__).parents[3] / "docs"
PAGE, RESULTS = _DOCS / "v2.md", _DOCS / "v2.json"
KINDS = ("greedy", "sampled", "seeded")
# A p-value below it says that outputs do not have the target's distribution.
LEAST_P = 1e-5


def is_right(cell: Mapping[str, Any]) -> bool:
    """Whether a cell ran, and its outputs are the target's."""
    return "accepted" in cell and min(cell.get("p_values", {"": 1.0}).values()) > LEAST_P


def with_tables(page: str, results: Mapping[str, Any]) -> str:
    """The text of the page with the tables of these results, by vLLM's version."""
    lines = []
    for version, found in results.items():
        lines += ["", f"### vLLM {version}", "", f"| drafter | {' | '.join(KINDS)} | min-p |", "|---|---|---|---|---|"]
        for name in DRAFTERS:
            if (row := found["drafters"].get(name)) is None:
                lines.append(f"| `{name}` | {' | '.join(['not run yet'] * 4)} |")
            else:
                lines.append(f"| `{name}` | {' | '.join(_text(row[kind]) for kind in KINDS)} | {_min_p(row)} |")
        versions, machine = found["versions"], found["machine"]
        seconds = sum(row["seconds"] for row in found["drafters"].values())
        ran = f"Run {found['date'][:10]} in {seconds} s of one core of {machine['cpu']}"
        lines += ["", f"{ran}: vLLM {versions['vllm']}, torch {versions['torch']}."]
    return fill(page, {"tables": lines[1:]})


def _text(cell: Mapping[str, Any]) -> str:
    if "accepted" not in cell:
        return f"**wrong**: {cell.get('wrong') or cell['error']}"
    verdict = "**wrong**" if not is_right(cell) else "exact" if "p_values" in cell else "equal"
    text = f"{verdict} ({cell['accepted']}, {cell['rejected']})"
    if "p_values" not in cell:
        return text
    name = min(cell["p_values"], key=cell["p_values"].__getitem__)
    return f"{text}, p {cell['p_values'][name]:.2g}{f' ({name})' if len(cell['p_values']) > 1 else ''}"


def _min_p(row: Mapping[str, Any]) -> str:
    cell = row.get("min_p")
    return "in sampled" if cell is None else "refused" if "error" in cell else "taken"
