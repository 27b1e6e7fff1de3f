"""A load profile of Locust's users, and whether the server's counts agree with the clients'."""

from collections.abc import Iterator, Mapping
from typing import Any

from loadtests.locust_process import last_line, run_locust
from loadtests.report import count
from tests.acceptance.verdicts import Settings, Verdict

# Users finish their requests, so that the counts can be compared to the last token.
_STOP_SECONDS = 120.0
# The server's figure and the clients' that must equal it.
_COUNTED_TWICE = {"requests": "succeeded", "output_tokens": "output_tokens", "prompt_tokens": "prompt_tokens"}
_IDLE = ("kv_usage", "running", "waiting")


def run_profile(profile: str, base_url: str, settings: Settings, *, has_plugin: bool) -> Iterator[Verdict]:
    """Runs a load profile and checks the result."""
    prefix = settings.out / profile
    report = prefix.with_suffix(".json")
    settings.say(f"{profile}: up to {settings.users} users for {settings.seconds:.0f} s")
    options = ["--load-profile", profile, "-u", str(settings.users), "--csv", str(prefix)]
    options += ["--report-html", str(prefix.with_suffix(".html"))]
    if settings.processes > 1:
        options += ["--processes", str(settings.processes)]
    status, found = run_locust(base_url, settings.seconds, _STOP_SECONDS, report, options)
    if found is None:
        figures = f"exit status {status}; last line of its log: {last_line(report.with_suffix('.log'))}"
        yield Verdict(profile, "Locust writes its report", False, figures)
        return
    yield from load_checks(profile, found, status, has_plugin=has_plugin)


def load_checks(
    part: str, report: Mapping[str, Any], exit_status: int | None, *, has_plugin: bool
) -> Iterator[Verdict]:
    """Checks a load profile.

    Args:
        exit_status: Locust's exit status; None if it had to be killed.
        has_plugin: whether the server has the plugin.
    """
    clients, server = report["all"], report["server"] or {}
    failures = ", ".join(f"{number} {kind}" for kind, number in clients["errors"].items()) or "none failed"
    rate = clients["output_tokens_per_second"] or 0.0
    figures = f"{clients['requests']} requests, {failures}, {rate:.0f} tokens/s, exit status {exit_status}"
    passed = exit_status == 0 and clients["requests"] > 0 and not clients["errors"]
    yield Verdict(part, "no request fails", passed, figures)
    for name, figure in _COUNTED_TWICE.items():
        found = server.get(name)
        figures = f"server {count(found)}, clients {count(clients[figure])}"
        check = f"{name.replace('_', ' ')}: server and clients count the same"
        yield Verdict(part, check, found == clients[figure], figures)
    drafted, accepted = server.get("draft_tokens"), server.get("accepted_tokens")
    passed = drafted is not None and accepted is not None and 0 < drafted >= accepted > 0
    figures = f"{count(drafted)} tokens drafted, {count(accepted)} accepted"
    yield Verdict(part, "drafts are made and accepted", passed, figures)
    if has_plugin:
        errors = server.get("proposer_errors")
        yield Verdict(part, "no proposer fails", errors == 0, f"{count(errors)} faults")
    yield idle_check(part, *(server.get(name) for name in _IDLE))


def idle_check(part: str, *values: float | None) -> Verdict:
    """Checks that nothing is left of the requests that were served: KV usage, running, waiting."""
    figures = f"KV usage, running, waiting: {', '.join(f'{value:g}' if value is not None else '-' for value in values)}"
    return Verdict(part, "no KV block is in use, no request is left", all(value == 0 for value in values), figures)
