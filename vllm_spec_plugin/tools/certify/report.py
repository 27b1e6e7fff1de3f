"""The report: a table and a verdict for people, JSON for programs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vllm_spec_plugin.tools.certify.results import Check, Report

SCHEMA_VERSION = 1
_STYLES = {"exact": "green", "not exact": "bold red", "not tested": "yellow"}


def show(report: Report, console: Console) -> None:
    """Prints the report."""
    console.print()
    console.print(_table(report.checks))
    console.print()
    for line in sentences(report):
        console.print(escape(line), soft_wrap=True, highlight=False)
    style = {0: "bold green", 1: "bold red", 2: "bold yellow"}[report.exit_status]
    console.print(Text(verdict(report), style=style), soft_wrap=True)


def verdict(report: Report) -> str:
    """The answer in one sentence."""
    if report.failed:
        names = ", ".join(dict.fromkeys(f"{check.name} ({check.engine})" for check in report.failed))
        return f"Not exact: {names}."
    untested = ", ".join(report.untested)
    if not report.is_complete:
        return f"Could not be told: too little to test in {untested}."
    return "Exact in all that was tested" + (f"; not tested: {untested}." if untested else ".")


def sentences(report: Report) -> list[str]:
    """What the figures stand on."""
    facts = report.facts
    drafted = sum(check.drafted for check in report.checks)
    accepted = sum(check.accepted for check in report.checks)
    minutes, seconds = divmod(round(report.seconds), 60)
    return [
        f"{drafted:,} draft tokens were verified, {accepted:,} of them accepted; {minutes} min {seconds} s on "
        f"{facts['device']}, {facts['dtype']}.",
        f"p-values are always-valid; below {report.threshold:.2g} is not exact. If the outputs are exact, any of them "
        f"is with probability {report.false_alarm:g} at most.",
        f"Greedy outputs may differ where the two highest logits are less than {report.tolerance:g} apart.",
    ]


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as plain data."""
    return {
        "schema": SCHEMA_VERSION,
        "verdict": ("exact", "not exact", "could not be told")[report.exit_status],
        "summary": verdict(report),
        "not_tested": report.untested,
        "false_alarm": report.false_alarm,
        "p_threshold": report.threshold,
        "greedy_tolerance": report.tolerance,
        "seconds": round(report.seconds, 1),
        "engine": report.facts,
        "checks": [dataclasses.asdict(check) for check in report.checks],
        **report.provenance,
    }


def _table(checks: Sequence[Check]) -> RenderableType:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("engine", "check", "outcome"):
        table.add_column(name, no_wrap=True)
    for name in ("drafted", "accepted", "p", "p, two samples", "p, chi-square"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    engine = None
    for check in checks:
        p_values = (check.p_value, check.p_two_samples, check.p_chi_square)
        table.add_row(
            check.engine if check.engine != engine else "",
            check.name,
            Text(check.outcome, style=_STYLES[check.outcome]),
            f"{check.drafted:,}",
            f"{check.accepted:,}",
            *("" if p is None else f"{p:.2g}" for p in p_values),
            escape(check.detail),
        )
        engine = check.engine
    return table
