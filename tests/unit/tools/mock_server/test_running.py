"""The server as the real `openai` client sees it."""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.mock_server import MockServer
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.mock_server.options import MockOptions

# As fast as it gets.
FAST = MockOptions(port=0, ttft_ms=0, itl_ms=0, tokens_per_chunk=2.5)
USAGE = {"include_usage": True, "continuous_usage_stats": True}
IDS = {"return_token_ids": True, "ignore_eos": True}
# One for all: each makes a TLS context, which takes longer than most of these tests.
HTTP = httpx.Client(trust_env=False, timeout=30, verify=False)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer(FAST) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: MockServer) -> Iterator[Any]:
    """The real one, without its types: they know OpenAI's fields only, and models by name."""
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def failing() -> Iterator[MockServer]:
    """Fails each request: refused, with an error event, cut, and so on."""
    with MockServer(dataclasses.replace(FAST, error_rate=1)) as server:
        yield server


def metrics(server: MockServer) -> dict[str, float]:
    return dict(ServerMetrics.parse(HTTP.get(f"{server.base_url}/metrics").text).totals)


def test_a_completion_is_the_same_streamed_or_not(client: Any) -> None:
    options = {"model": "mock", "prompt": "tell me", "max_tokens": 20, "temperature": 0, "extra_body": IDS}
    whole = client.completions.create(**options)
    chunks = list(client.completions.create(**options, stream=True, stream_options=USAGE))
    *parts, last = chunks
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert [token for part in parts for token in part.choices[0].token_ids] == whole.choices[0].token_ids
    assert [part.choices[0].finish_reason for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert parts[0].choices[0].prompt_token_ids == whole.choices[0].prompt_token_ids
    assert all(part.choices[0].prompt_token_ids is None for part in parts[1:])
    assert last.choices == []
    assert last.usage == parts[-1].usage == whole.usage
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (2, 20, 22)
    sizes = [len(part.choices[0].token_ids) for part in parts]
    assert sizes[0] == 1
    assert max(sizes) > 1


def test_a_chat_is_the_same_streamed_or_not(client: Any) -> None:
    options = {"model": "mock", "messages": HELLO, "max_completion_tokens": 20}
    whole = client.chat.completions.create(**options)
    opening, *parts, last = client.chat.completions.create(**options, stream=True, stream_options=USAGE)
    assert (opening.choices[0].delta.role, opening.choices[0].delta.content) == ("assistant", "")
    assert opening.usage.completion_tokens == 0
    assert "".join(part.choices[0].delta.content for part in parts) == whole.choices[0].message.content
    assert parts[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert last.usage == whole.usage
    assert last.usage.completion_tokens == 20


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"prompt": "a", "max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"prompt": "a", "max_tokens": 32768}, "max_tokens", "maximum context length is 32768 tokens"),
        ({"prompt": ["a", "b"]}, "prompt", "a text or a list of token ids"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, None, "when `stream=True`"),
        ({}, "prompt", "a text or a list of token ids"),
    ],
)
def test_bad_parameters_are_answered_with_400_and_openais_error(
    server: MockServer, body: dict[str, object], param: str | None, said: str
) -> None:
    response = HTTP.post(f"{server.base_url}/v1/completions", json={"model": "mock"} | body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("BadRequestError", 400, param)
    assert said in error["message"]


def test_what_is_not_json_is_a_bad_request_and_another_model_is_not_found(server: MockServer, client: Any) -> None:
    response = HTTP.post(f"{server.base_url}/v1/completions", content=b"{")
    assert (response.status_code, response.json()["error"]["code"]) == (400, 400)
    with pytest.raises(openai.NotFoundError, match="The model `other` does not exist"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="mock", messages=[])


def test_failures_take_turns_and_count_as_far_as_they_got(failing: MockServer) -> None:
    body = {"model": "mock", "prompt": "a", "max_tokens": 20, "stream": True}
    url = f"{failing.base_url}/v1/completions"
    assert HTTP.post(url, json=body).status_code == 500
    assert "planned failure of the mock server" in HTTP.post(url, json=body).text
    with pytest.raises(httpx.RemoteProtocolError):
        HTTP.post(url, json=body)
    after = metrics(failing)
    assert 0 < after["vllm:generation_tokens_total"] < 40
    assert after["vllm:request_success_total"] == 0
    assert after["vllm:num_requests_running"] == 0


def test_a_client_that_goes_away_ends_its_request() -> None:
    with MockServer(MockOptions(port=0, ttft_ms=0, itl_ms=20)) as server:
        body = {"model": "mock", "prompt": "a", "max_tokens": 5000, "stream": True}
        url = f"{server.base_url}/v1/completions"
        with HTTP.stream("POST", url, json=body) as response:
            pieces = response.iter_raw()
            next(pieces)
            running = metrics(server)
            assert running["vllm:num_requests_running"] == 1
            assert running["vllm:kv_cache_usage_perc"] > 0
        deadline = time.monotonic() + 20
        while metrics(server)["vllm:num_requests_running"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert metrics(server)["vllm:request_success_total"] == 0
        assert metrics(server)["vllm:generation_tokens_total"] < 5000


def test_a_server_ends_though_a_stream_is_open_and_its_port_is_free_then() -> None:
    server = MockServer(MockOptions(port=0, ttft_ms=0, itl_ms=50))
    server.start()
    body = {"model": "mock", "prompt": "a", "max_tokens": 5000, "stream": True}
    with HTTP.stream("POST", f"{server.base_url}/v1/completions", json=body) as response:
        pieces = response.iter_raw()
        next(pieces)
        server.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    server.stop()
    with MockServer(dataclasses.replace(FAST, port=server.port)):
        pass
