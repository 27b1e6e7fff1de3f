"""What is to be true of a course of users. Pure."""

from collections.abc import Mapping
from typing import Any

from loadtests.acceptance.metrics import ERRORS, grown
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

_DRAFTED, _ACCEPTED = (f"vllm:spec_decode_num_{name}_tokens_total" for name in ("draft", "accepted"))
# The server's counter, and the clients' figure that it is to equal: every request was read to its end.
_COUNTED_TWICE = {
    "requests": ("vllm:request_success_total", "succeeded"),
    "output tokens": ("vllm:generation_tokens_total", "output_tokens"),
    "prompt tokens": ("vllm:prompt_tokens_total", "prompt_tokens"),
}


def load_checks(
    part: str,
    report: Mapping[str, Any],
    exit_status: int | None,
    before: ServerMetrics,
    after: ServerMetrics,
    *,
    has_plugin: bool,
) -> list[Verdict]:
    """Judges a course.

    Args:
        part: the course's name.
        report: of `--report`.
        exit_status: Locust's; None if it had to be ended.
        before: the server's metrics before the first request.
        after: those after the last one.
        has_plugin: whether the server is one of ours, which counts faults of proposers.
    """
    clients = report["all"]
    verdicts = [_no_failures(part, clients, exit_status)]
    for what, (counter, figure) in _COUNTED_TWICE.items():
        found = grown(before, after, counter)
        check = f"{what}: the server counts what the clients count"
        figures = f"server {_number(found)}, clients {_number(clients[figure])}"
        verdicts.append(Verdict(part, check, found == clients[figure], figures))
    verdicts.append(_drafts(part, before, after))
    if has_plugin:
        errors = grown(before, after, ERRORS)
        verdicts.append(Verdict(part, "no fault in a proposer", errors == 0, f"{_number(errors)} faults"))
    return verdicts


def _no_failures(part: str, clients: Mapping[str, Any], exit_status: int | None) -> Verdict:
    count, errors = clients["requests"], clients["errors"]
    failures = ", ".join(f"{number} {kind}" for kind, number in errors.items()) or "none failed"
    rate = clients["output_tokens_per_second"] or 0.0
    figures = f"{count} requests, {failures}, {rate:.0f} tokens/s, Locust's exit status {exit_status}"
    return Verdict(part, "no request fails", exit_status == 0 and count > 0 and not errors, figures)


def _drafts(part: str, before: ServerMetrics, after: ServerMetrics) -> Verdict:
    drafted, accepted = grown(before, after, _DRAFTED), grown(before, after, _ACCEPTED)
    passed = drafted is not None and accepted is not None and 0 < drafted >= accepted > 0
    figures = f"{_number(drafted)} tokens drafted, {_number(accepted)} accepted"
    return Verdict(part, "drafts are made and accepted", passed, figures)


def _number(value: float | None) -> str:
    return "not in /metrics" if value is None else f"{value:,.0f}"
