"""Readings of `/metrics`."""

import pytest

from loadtests.acceptance.metrics import ERRORS, grown, idle_check
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

TEXT = """\
# TYPE vllm_spec_plugin:proposer_errors_total counter
vllm_spec_plugin:proposer_errors_total{method="ngram",reason="raised"} 3.0
vllm_spec_plugin:proposer_errors_total{method="draft_model",reason="raised"} 4.0
vllm_spec_plugin:proposer_errors_total{method="ngram",reason="bad_probabilities"} 0.0
"""
IDLE = {"vllm:kv_cache_usage_perc": 0.0, "vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0}


def test_samples_are_added_up_by_a_label() -> None:
    assert ServerMetrics.parse(TEXT).by_label(ERRORS, "reason") == {"raised": 7.0, "bad_probabilities": 0.0}


def test_a_counter_that_was_not_there_began_at_0() -> None:
    before, after = ServerMetrics({"a": 3.0}), ServerMetrics({"a": 5.0, "b": 2.0})
    assert [grown(before, after, name) for name in "abc"] == [2.0, 2.0, None]


def test_nothing_left_is_idle() -> None:
    assert idle_check("ramp", ServerMetrics(IDLE)).passed


@pytest.mark.parametrize("name", IDLE)
@pytest.mark.parametrize("value", [0.01, 1.0, None])
def test_what_is_left_and_what_is_not_told_is_not_idle(name: str, value: float | None) -> None:
    values = {key: held for key, held in {**IDLE, name: value}.items() if held is not None}
    verdict = idle_check("ramp", ServerMetrics(values))
    assert not verdict.passed
    assert ("not in /metrics" if value is None else f"{value:g}") in verdict.figures
