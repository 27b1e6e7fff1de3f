"""The mock server's metrics: those that the dashboard asks for, and what they count."""

from collections.abc import Iterator

import httpx
import pytest

from tests.dashboard import Exposed, queries
from tests.mock_server import MockServer
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.mock_server.options import MockOptions

HTTP = httpx.Client(trust_env=False, timeout=30, verify=False)
ACCEPTED, DRAFTED = (f"vllm:spec_decode_num_{name}_tokens_total" for name in ("accepted", "draft"))


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer(MockOptions(port=0, ttft_ms=1, itl_ms=1, tokens_per_chunk=2.5)) as server:
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
