"""Writes the tables of docs/parameters.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.marked import fill
from tests.parameters.fields import FIELDS, STRUCTURES, Field, Verdict

_DOCS = Path(__file__).parents[2] / "docs"
PAGE, RESULTS = _DOCS / "parameters.md", _DOCS / "parameters.json"
_COUNTS = ("requests", "greedy", "seeded", "sampled", "refused", "left", "tied", "preempted", "drafted", "accepted")


def with_tables(page: str, results: Mapping[str, Any]) -> str:
    """The text of the page with the tables of fields, and of these results by vLLM's version and server."""
    return fill(page, {"fields": _fields(), "counts": _counts(results)})


def _fields() -> list[str]:
    structures = {f"structured_outputs.{name}": field for name, field in STRUCTURES.items()}
    fields = FIELDS | structures
    served = [f"`{name}`" for name, field in fields.items() if field == Field(Verdict.SERVED)]
    lines = ["Served by all ways: " + ", ".join(served) + ".", ""]
    lines += ["| field | own proposers on V1 | where vLLM verifies |", "|---|---|---|"]
    rows: dict[tuple[str, str], list[str]] = {}
    for name, field in fields.items():
        if field != Field(Verdict.SERVED):
            ours = _cell(field.verdict, field.why)
            theirs = _cell(field.by_vllm, field.why_by_vllm) if field.by_vllm else "the same"
            since = f" (since {'.'.join(map(str, field.since))})" if field.since else ""
            rows.setdefault((ours, theirs), []).append(f"`{name}`{since}")
    return lines + [f"| {', '.join(names)} | {ours} | {theirs} |" for (ours, theirs), names in rows.items()]


def _cell(verdict: Verdict, why: str) -> str:
    shown = "no matter" if verdict == Verdict.IRRELEVANT else str(verdict)
    return f"{shown}: {why}" if why else shown


def _counts(results: Mapping[str, Any]) -> list[str]:
    lines = [f"| vLLM | server | {' | '.join(_COUNTS)} | date |", "|---|---|" + "---|" * (len(_COUNTS) + 1)]
    for version, servers in results.items():
        for server, row in servers.items():
            numbers = " | ".join(str(row.get(name, 0)) for name in _COUNTS)
            lines.append(f"| {version} | {server} | {numbers} | {row['date']} |")
    return lines
