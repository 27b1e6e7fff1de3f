"""The report of a certification: verdict, table, p-values and JSON."""

import dataclasses
from typing import Any

from vllm_spec_tools import report as kit
from vllm_spec_tools.certify.results import Certificate, Check, PValues

_HEADER = ("engine", "check", "outcome", "finding", "drafted", "accepted", "p", "p, two samples", "p, chi-square")
_MEASURED = ("drafted", "accepted", "p_value", "p_two_samples", "p_chi_square")


def report_of(report: Certificate) -> kit.Report:
    """Makes the report, the verdict first."""
    measured = kit.Measurements()
    for check in report.checks:
        values = {name: getattr(check, name) for name in _MEASURED}
        measured.add(check.engine, check.name, 1, 0, values)
    charts = [PValues(report)] if any(check.p_value is not None for check in report.checks) else []
    return kit.Report(
        "certify",
        "Certification that outputs are exact",
        report.provenance | {"engine": report.facts},
        [verdict(report), *sentences(report)],
        [kit.Table("Checks", _HEADER, [_row(check) for check in report.checks], text_columns=4)],
        charts,
        measurements=measured,
        data=_data(report),
    )


def verdict(report: Certificate) -> str:
    """The answer in one sentence."""
    if report.failed:
        names = ", ".join(dict.fromkeys(f"{check.name} ({check.engine})" for check in report.failed))
        return f"Not exact: {names}."
    untested = ", ".join(report.untested)
    if not report.is_complete:
        return f"Could not be told: too little to test in {untested}."
    return "Exact in all that was tested" + (f"; not tested: {untested}." if untested else ".")


def sentences(report: Certificate) -> list[str]:
    """Says what the figures stand on."""
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


def _data(report: Certificate) -> dict[str, Any]:
    return {
        "verdict": ("exact", "not exact", "could not be told")[report.exit_status],
        "summary": verdict(report),
        "not_tested": report.untested,
        "false_alarm": report.false_alarm,
        "p_threshold": report.threshold,
        "greedy_tolerance": report.tolerance,
        "seconds": round(report.seconds, 1),
        "checks": [dataclasses.asdict(check) for check in report.checks],
    }


def _row(check: Check) -> list[str]:
    p_values = (check.p_value, check.p_two_samples, check.p_chi_square)
    figures = [f"{check.drafted:,}", f"{check.accepted:,}", *("" if p is None else f"{p:.2g}" for p in p_values)]
    return [check.engine, check.name, check.outcome, check.detail, *figures]
