"""Tests a server's counts during a load test."""

import pytest

from loadtests.server import ServerCounts, ServerNotThereError, ServerUnderTest, is_idle
from tests.mock_server import MockOptions, MockServer
from vllm_spec_tools.engines.server_metrics import ServerMetrics

BEFORE = {"vllm:generation_tokens_total": 15.0, "vllm:num_requests_running": 3.0}
AFTER = {
    "vllm:generation_tokens_total": 135.0,
    "vllm:num_requests_running": 2.0,
    "vllm:spec_decode_num_drafts_total": 20.0,
    "vllm:spec_decode_num_draft_tokens_total": 80.0,
    "vllm:spec_decode_num_accepted_tokens_total": 50.0,
}
IDLE = {"vllm:kv_cache_usage_perc": 0.0, "vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0}


def test_counters_are_differences_and_gauges_are_not() -> None:
    found = ServerCounts.between(ServerMetrics(BEFORE), ServerMetrics(AFTER))
    assert (found.output_tokens, found.drafts, found.running) == (120, 20, 2)
    assert (found.acceptance_rate, found.acceptance_length) == (50 / 80, 3.5)
    assert (found.requests, found.kv_usage) == (None, None)


def test_without_drafts_there_is_no_acceptance() -> None:
    found = ServerCounts.between(ServerMetrics(AFTER), ServerMetrics(AFTER))
    assert (found.drafts, found.acceptance_rate, found.acceptance_length) == (0, None, None)


@pytest.mark.parametrize("name", IDLE)
@pytest.mark.parametrize("value", [0.01, None])
def test_what_is_in_use_or_not_exported_is_not_idle(name: str, value: float | None) -> None:
    assert is_idle(ServerMetrics(IDLE))
    assert not is_idle(ServerMetrics({key: held for key, held in {**IDLE, name: value}.items() if held is not None}))


def test_a_server_names_its_model_and_one_that_is_not_there_is_reported() -> None:
    with MockServer(MockOptions(port=0, model="tiny")) as mock:
        server = ServerUnderTest(f"{mock.base_url}/")
        assert server.first_model()["id"] == "tiny"
        assert is_idle(server.idle_metrics())
    with pytest.raises(ServerNotThereError, match="does not name a model"):
        server.first_model()
    with pytest.raises(ServerNotThereError, match="/metrics cannot be read"):
        server.metrics()
