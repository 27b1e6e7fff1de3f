"""A load profile of Locust's users, and whether the server's counts agree with the clients'."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadtests.acceptance.verdicts import Settings, Verdict
from loadtests.locust_process import last_line, run_locust
from loadtests.server import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    KV_USAGE,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    PROPOSER_ERRORS,
    REQUESTS,
    RUNNING,
    WAITING,
    ServerUnderTest,
    is_idle,
)
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

# Users finish their requests, so that the counts can be compared to the last token.
_STOP_SECONDS = 120.0
_SECONDS_BETWEEN_LINES = 15.0
# The server's counter and the clients' figure that must equal it.
_COUNTED_TWICE = {
    "requests": (REQUESTS, "succeeded"),
    "output tokens": (OUTPUT_TOKENS, "output_tokens"),
    "prompt tokens": (PROMPT_TOKENS, "prompt_tokens"),
}


def run_profile(profile: str, base_url: str, settings: Settings, *, has_plugin: bool) -> Iterator[Verdict]:
    """Runs a load profile and checks the result.

    Args:
        profile: name of the load profile.
        base_url: URL of the server.
        settings: users, time and folder.
        has_plugin: whether the server has the plugin, which counts faults of proposers.

    Raises:
        ServerNotThereError: the server's metrics cannot be read.
    """
    server, prefix = ServerUnderTest(base_url), settings.out / profile
    report = prefix.with_suffix(".json")
    before = server.idle_metrics()
    start = shown = time.monotonic()

    def show() -> None:
        nonlocal shown
        if time.monotonic() - shown < _SECONDS_BETWEEN_LINES:
            return
        shown = time.monotonic()
        now = server.metrics()
        answered, in_flight = now.increase(before, REQUESTS), now.totals.get(RUNNING, 0) + now.totals.get(WAITING, 0)
        line = f"{profile}: {shown - start:.0f} s, {_number(answered)} requests answered, {in_flight:.0f} in flight"
        settings.say(line)

    options = ["--load-profile", profile, "-u", str(settings.users), "--csv", str(prefix)]
    options += ["--report-html", str(prefix.with_suffix(".html"))]
    if settings.processes > 1:
        options += ["--processes", str(settings.processes)]
    status = run_locust(base_url, settings.seconds, _STOP_SECONDS, report, options, show)
    after = server.idle_metrics()
    found = read_report(report)
    if found is None:
        figures = f"exit status {status}; last line of its log: {last_line(report.with_suffix('.log'))}"
        yield Verdict(profile, "Locust writes its report", False, figures)
        return
    yield from load_checks(profile, found, status, before, after, has_plugin=has_plugin)
    yield idle_check(profile, after)


def read_report(report: Path) -> dict[str, Any] | None:
    """A report of Locust's; None if there is none."""
    try:
        found: dict[str, Any] = json.loads(report.read_text())
    except (OSError, ValueError):
        return None
    return found


def load_checks(
    part: str,
    report: Mapping[str, Any],
    exit_status: int | None,
    before: ServerMetrics,
    after: ServerMetrics,
    *,
    has_plugin: bool,
) -> list[Verdict]:
    """Checks a load profile.

    Args:
        part: name of the load profile.
        report: the report of the load test.
        exit_status: Locust's exit status; None if it had to be killed.
        before: the server's metrics before the first request.
        after: the server's metrics after the last one.
        has_plugin: whether the server has the plugin.
    """
    clients = report["all"]
    verdicts = [_no_failures(part, clients, exit_status)]
    for name, (counter, figure) in _COUNTED_TWICE.items():
        found = after.increase(before, counter)
        figures = f"server {_number(found)}, clients {_number(clients[figure])}"
        verdicts.append(Verdict(part, f"{name}: server and clients count the same", found == clients[figure], figures))
    drafted, accepted = after.increase(before, DRAFT_TOKENS), after.increase(before, ACCEPTED_TOKENS)
    passed = drafted is not None and accepted is not None and 0 < drafted >= accepted > 0
    figures = f"{_number(drafted)} tokens drafted, {_number(accepted)} accepted"
    verdicts.append(Verdict(part, "drafts are made and accepted", passed, figures))
    if has_plugin:
        errors = after.increase(before, PROPOSER_ERRORS)
        verdicts.append(Verdict(part, "no proposer fails", errors == 0, f"{_number(errors)} faults"))
    return verdicts


def idle_check(part: str, metrics: ServerMetrics) -> Verdict:
    """Checks that nothing is left of the requests that were served."""
    values = [metrics.totals.get(name) for name in (KV_USAGE, RUNNING, WAITING)]
    shown = ", ".join("not in /metrics" if value is None else f"{value:g}" for value in values)
    figures = f"KV usage, running, waiting: {shown}"
    return Verdict(part, "no KV block is in use, no request is left", is_idle(metrics), figures)


def _no_failures(part: str, clients: Mapping[str, Any], exit_status: int | None) -> Verdict:
    count, errors = clients["requests"], clients["errors"]
    failures = ", ".join(f"{number} {kind}" for kind, number in errors.items()) or "none failed"
    rate = clients["output_tokens_per_second"] or 0.0
    figures = f"{count} requests, {failures}, {rate:.0f} tokens/s, exit status {exit_status}"
    return Verdict(part, "no request fails", exit_status == 0 and count > 0 and not errors, figures)


def _number(value: float | None) -> str:
    return "not in /metrics" if value is None else f"{value:,.0f}"
