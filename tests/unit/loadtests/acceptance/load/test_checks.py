"""A course of users, judged by invented figures."""

from typing import Any

import pytest

from loadtests.acceptance.load.checks import load_checks
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

BEFORE = {"vllm:request_success_total": 5.0, "vllm:generation_tokens_total": 300.0, "vllm:prompt_tokens_total": 50.0}
AFTER = {
    "vllm:request_success_total": 105.0,
    "vllm:generation_tokens_total": 6300.0,
    "vllm:prompt_tokens_total": 9050.0,
    "vllm:spec_decode_num_draft_tokens_total": 4000.0,
    "vllm:spec_decode_num_accepted_tokens_total": 2500.0,
    "vllm_spec_plugin:proposer_errors_total": 0.0,
}
CLIENTS: dict[str, Any] = {
    "requests": 100,
    "succeeded": 100,
    "errors": {},
    "output_tokens": 6000,
    "prompt_tokens": 9000,
    "output_tokens_per_second": 400.0,
}


def judged(
    clients: dict[str, Any] | None = None,
    after: dict[str, float | None] | None = None,
    exit_status: int | None = 0,
    has_plugin: bool = True,
) -> list[Verdict]:
    values = {name: value for name, value in {**AFTER, **(after or {})}.items() if value is not None}
    report = {"all": CLIENTS | (clients or {})}
    return load_checks("ramp", report, exit_status, ServerMetrics(BEFORE), ServerMetrics(values), has_plugin=has_plugin)


def failed(verdicts: list[Verdict]) -> list[str]:
    return [verdict.check for verdict in verdicts if not verdict.passed]


def test_figures_that_agree_pass() -> None:
    verdicts = judged()
    assert failed(verdicts) == []
    assert len(verdicts) == 6
    assert any("server 6,000, clients 6,000" in verdict.figures for verdict in verdicts)


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"clients": {"errors": {"timeout": 2}}}, "no request fails", "2 timeout"),
        ({"exit_status": 1}, "no request fails", "exit status 1"),
        ({"exit_status": None}, "no request fails", "exit status None"),
        ({"clients": {"succeeded": 99}}, "requests:", "server 100, clients 99"),
        ({"clients": {"output_tokens": 6001}}, "output tokens:", "server 6,000, clients 6,001"),
        ({"clients": {"prompt_tokens": 8999}}, "prompt tokens:", "server 9,000, clients 8,999"),
        ({"after": {"vllm:generation_tokens_total": None}}, "output tokens:", "server not in /metrics"),
        ({"after": {"vllm:spec_decode_num_draft_tokens_total": 0.0}}, "drafts are made", "0 tokens drafted"),
        ({"after": {"vllm:spec_decode_num_accepted_tokens_total": 4001.0}}, "drafts are made", "4,001 accepted"),
        ({"after": {"vllm:spec_decode_num_accepted_tokens_total": 0.0}}, "drafts are made", "0 accepted"),
        ({"after": {"vllm:spec_decode_num_draft_tokens_total": None}}, "drafts are made", "not in /metrics"),
        ({"after": {"vllm_spec_plugin:proposer_errors_total": 1.0}}, "no fault", "1 faults"),
        ({"after": {"vllm_spec_plugin:proposer_errors_total": None}}, "no fault", "not in /metrics"),
    ],
)
def test_each_figure_that_does_not_fails_its_check_only(changes: dict[str, Any], check: str, words: str) -> None:
    verdicts = judged(**changes)
    assert len(failed(verdicts)) == 1
    assert failed(verdicts)[0].startswith(check)
    assert words in next(verdict.figures for verdict in verdicts if not verdict.passed)


def test_no_request_at_all_is_a_failure() -> None:
    clients = {"requests": 0, "succeeded": 0, "output_tokens": 0, "prompt_tokens": 0, "output_tokens_per_second": None}
    assert "no request fails" in failed(judged(clients))


def test_another_server_is_not_asked_for_faults_of_proposers() -> None:
    without: dict[str, float | None] = {"vllm_spec_plugin:proposer_errors_total": None}
    verdicts = judged(after=without, has_plugin=False)
    assert failed(verdicts) == []
    assert len(verdicts) == 5
