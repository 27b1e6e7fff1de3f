"""The mock server's metrics: those that the dashboard asks for, and what they count."""

import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.dashboard import Exposed, queries
from vllm_spec_plugin.tools.mock_server.options import MockOptions
from vllm_spec_plugin.tools.mock_server.running import MockServer
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

HTTP = httpx.Client(trust_env=False, timeout=30, verify=False)
ACCEPTED, DRAFTED = (f"vllm:spec_decode_num_{name}_tokens_total" for name in ("accepted", "draft"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(MockOptions(ttft_ms=1, itl_ms=1, tokens_per_chunk=2.5)) as server:
        yield server


def scrape(server: MockServer) -> str:
    return HTTP.get(f"{server.base_url}/metrics").text


def complete(server: MockServer, **more: object) -> int:
    body = {"model": "mock", "prompt": "a b c", "max_tokens": 30} | more
    return HTTP.post(f"{server.base_url}/v1/completions", json=body).status_code


def test_every_metric_and_label_that_the_dashboard_asks_for_exists(server: MockServer) -> None:
    assert (complete(server), complete(server, max_tokens=-1)) == (200, 400)
    exposed = Exposed.parse(scrape(server))
    asked = [selector.metric for query in queries() for selector in query.selectors()]
    assert len({metric for metric in asked if metric.startswith("vllm_spec_plugin:")}) > 15
    assert not [complaint for query in queries() for complaint in exposed.missing(query)]


def test_the_plugins_counters_agree_with_vllms(server: MockServer) -> None:
    complete(server)
    found = ServerMetrics.parse(scrape(server))
    for own, stock in (("draft_tokens", DRAFTED), ("verified_tokens", DRAFTED), ("accepted_tokens", ACCEPTED)):
        assert found.totals[f"vllm_spec_plugin:{own}_total"] == found.totals[stock] > 0
    assert found.by_label("vllm_spec_plugin:accepted_tokens_total", "position").keys() == {"0", "1", "2"}
    assert found.totals["vllm_spec_plugin:realised_saved_seconds"] > 0
    assert found.totals["vllm_spec_plugin:request_acceptance_rate_count"] == 1
    assert found.totals["vllm_spec_plugin:proposer_errors_total"] == 0


def test_a_request_without_speculation_is_not_drafted_for(server: MockServer) -> None:
    complete(server, vllm_xargs={"spec": "off"})
    totals = ServerMetrics.parse(scrape(server)).totals
    assert (totals[DRAFTED], totals["vllm_spec_plugin:draft_tokens_total"]) == (0, 0)
    assert totals["vllm:generation_tokens_total"] == totals["vllm_spec_plugin:draft_length_count"] + 1 == 30


def test_requests_beyond_the_limit_wait() -> None:
    """Each takes 0.1 s: three one after the other take 0.3 s at least."""
    with MockServer(MockOptions(ttft_ms=100, itl_ms=0, max_running=1)) as server:
        threads = [threading.Thread(target=complete, args=(server,)) for _ in range(3)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        most = 0.0
        while any(thread.is_alive() for thread in threads):
            totals = ServerMetrics.parse(scrape(server)).totals
            assert totals["vllm:num_requests_running"] <= 1
            most = max(most, totals["vllm:num_requests_waiting"])
        assert time.monotonic() - started >= 0.3
        assert most >= 1
        totals = ServerMetrics.parse(scrape(server)).totals
    assert totals["vllm:num_requests_waiting"] == totals["vllm:num_requests_running"] == 0
    assert totals["vllm:request_queue_time_seconds_sum"] >= 0.25
