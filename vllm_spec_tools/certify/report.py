"""The report of a certification: verdict, table and JSON."""

import dataclasses
import math
from typing import Any

from vllm_spec_tools import report as kit
from vllm_spec_tools.certify.results import SEEDED, VERDICTS, Certificate, Check
from vllm_spec_tools.certify.subject import AS_GIVEN

_HEADER = ("engine", "check", "outcome", "finding", "drafted", "accepted", "outputs", "p", "p, two samples", "finds")
# Power is low where no smaller share of wrong draft tokens is found.
_LOW_POWER = 0.2
# Smaller ones have two decimals.
_SMALL = 1e-2


def report_of(report: Certificate) -> kit.Report:
    """Makes the report, the verdict first."""
    return kit.Report(
        "certify",
        "Certification that outputs are exact",
        report.provenance | {"engine": report.facts},
        [verdict(report), *sentences(report)],
        [kit.Table("Checks", _HEADER, [_row(check) for check in report.checks], text_columns=4)],
        data=_data(report),
    )


def verdict(report: Certificate) -> str:
    """Returns the answer."""
    if report.failed:
        names = "; ".join(dict.fromkeys(f"{check.name} ({check.engine})" for check in report.failed))
        return f"Not exact: {names}."
    untested = "; ".join(report.untested)
    if not report.is_complete:
        return f"Could not be told: too little to test in {untested}."
    checks = report.of_drafts
    missing = sum(check.outcome == "not tested" for check in checks)
    told = f"Exact in {len(checks) - missing} of {len(checks)} checks."
    if report.not_as_configured:
        forced = "; ".join(report.not_as_configured)
        told += f" Not tested as configured, but with random draft lengths only: {forced}."
    return told + (f" Not tested at all: {untested}." if untested else "")


def sentences(report: Certificate) -> list[str]:
    """Says what the figures stand on."""
    facts = report.facts
    drafted = sum(check.drafted for check in report.checks)
    accepted = sum(check.accepted for check in report.checks)
    minutes, seconds = divmod(round(report.seconds), 60)
    return [
        f"{drafted:,} draft tokens were verified, {accepted:,} of them accepted; {minutes} min {seconds} s on "
        f"{facts['device']}, {facts['dtype']}.",
        f"p-values below {report.threshold:.2g} are not exact. If the outputs are exact, any of them is with "
        f"probability {report.false_alarm:g} at most.",
        *_power(report),
        *([f"Outputs without speculation were read from {report.baseline}."] if report.baseline else []),
        f"Greedy outputs may differ where the two highest logits are less than {report.tolerance:g} apart.",
    ]


def _power(report: Certificate) -> list[str]:
    """Says what faults the samples and seeded outputs would show, with every engine by itself."""
    tested = [check for check in report.of_drafts if check.p_value is not None and check.outcome == "exact"]
    told = [
        f"Seeded outputs, {check.engine}: {check.outputs:,} outputs. They show with a probability of 95% if "
        f"{_share(check.smallest_fault or math.inf)} of the tokens are not the ones without speculation."
        for check in tested
        if check.name == SEEDED
    ]
    sampled = [check for check in tested if check.name != SEEDED]
    for engine in dict.fromkeys(check.engine for check in sampled):
        own = [check for check in sampled if check.engine == engine]
        shares = [check.smallest_fault for check in own]
        low, high = min(share or math.inf for share in shares), max(share or math.inf for share in shares)
        numbers = {check.outputs for check in own}
        made = f"{min(numbers):,}" + (f" to {max(numbers):,}" if len(numbers) > 1 else "")
        text = f"Samples, {engine}: {made} outputs per setting. They show with a probability of 95% if "
        text += f"{_share(low)}" + (f" ({_share(high)} in the weakest setting)" if high > low else "")
        told.append(text + " of the draft tokens are output without verification.")
    weak = [check.name for check in sampled if (check.smallest_fault or math.inf) > _LOW_POWER]
    if weak:
        names = ", ".join(dict.fromkeys(weak))
        told.append(f"The power is low in {names}: allow more time, such as --minutes {4 * report.minutes:g}.")
    return told


def _share(share: float) -> str:
    if math.isinf(share):
        return "not even all"
    return f"{share:.2%}" if share < _SMALL else f"{share:.1%}".replace(".0%", "%")


def _data(report: Certificate) -> dict[str, Any]:
    return {
        "verdict": VERDICTS[report.exit_status],
        "summary": verdict(report),
        "exit_status": report.exit_status,
        "not_tested": report.untested,
        "not_tested_as_configured": report.not_as_configured,
        "false_alarm": report.false_alarm,
        "p_threshold": report.threshold,
        "greedy_tolerance": report.tolerance,
        "seconds": round(report.seconds, 1),
        "sampling_minutes": report.minutes,
        "baseline": report.baseline,
        "checks": [dataclasses.asdict(check) for check in report.checks],
    }


def _row(check: Check) -> list[str]:
    p_values = ("" if p is None else f"{p:.2g}" for p in (check.p_value, check.p_two_samples))
    outcome = "not tested as configured" if (check.outcome, check.engine) == ("not tested", AS_GIVEN) else check.outcome
    counts = (f"{count:,}" for count in (check.drafted, check.accepted, check.outputs))
    finds = "" if check.smallest_fault is None else _share(check.smallest_fault)
    return [check.engine, check.name, outcome, check.detail, *counts, *p_values, finds]
