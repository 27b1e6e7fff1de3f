"""The Grafana dashboard and a live server."""

import httpx
import openai
import pytest

from tests.dashboard import Exposed, queries
from vllm_spec_tools.serving import Server

pytestmark = pytest.mark.e2e

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef multiply(a, b):\n    return a * b\n\n\ndef divide(a, b):\n"


def test_the_server_has_every_metric_and_label_that_the_dashboard_asks_for(
    server: Server, client: openai.OpenAI, model: str, method: str
) -> None:
    if method != "cascade":
        pytest.skip("the same metrics as a cascade's")
    for _ in range(3):
        client.completions.create(model=model, prompt=PROMPT, max_tokens=48, temperature=0)
    exposed = Exposed.parse(httpx.get(f"{server.base_url}/metrics", trust_env=False).text)
    assert {"vllm:generation_tokens_total", "vllm_spec_plugin:accepted_tokens_total"} <= set(exposed.series)
    assert not [complaint for query in queries() for complaint in exposed.missing(query)]
