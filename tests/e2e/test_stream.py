"""What a client sees of a server that sends tokens in groups of one size."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e.conftest import ENVIRONMENT, OPTIONS
from tests.e2e.test_serve import PROMPT, complete
from tests.fixed_length import fixed_length
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.serving import Server

pytestmark = pytest.mark.e2e

NUM_TOKENS = 48
USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.fixture(scope="module")
def fixed_server(method: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """As `server`, but for `stream_granularity`."""
    if method != "cascade":
        pytest.skip("another server to start, and nothing that depends on who drafts")
    path: Path = tmp_path_factory.mktemp("stream") / "fixed.yaml"
    path.write_text(f"{Path(fixed_length(method)).read_text()}\nstream_granularity: fixed\n")
    assert load_config(path).stream_tokens == 5
    with Server(model_path("target"), str(path), extra_args=OPTIONS, environment=ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="module")
def fixed(fixed_server: Server) -> openai.OpenAI:
    """An OpenAI client of that server."""
    return openai.OpenAI(base_url=f"{fixed_server.base_url}/v1", api_key="none", max_retries=0)


def stream(client, model, **options):
    """The chunks of a streamed completion that have a choice."""
    options = {"max_tokens": NUM_TOKENS, "extra_body": {"ignore_eos": True}, **options}
    chunks = complete(client, model, stream=True, stream_options=USAGE, **options)
    return [chunk for chunk in chunks if chunk.choices]


def text_of(chunks):
    return "".join(chunk.choices[0].text for chunk in chunks)


def sizes_of(chunks):
    """How many tokens came with each chunk."""
    counts = [0, *(chunk.usage.completion_tokens for chunk in chunks)]
    return [after - before for before, after in itertools.pairwise(counts)]


def test_chunks_have_one_size_and_the_text_is_the_same(client, fixed, model):
    """But for the last one. A frontend that lags behind may send two groups at once."""
    free, grouped = stream(client, model), stream(fixed, model)
    assert text_of(grouped) == text_of(free)
    assert sum(sizes_of(grouped)) == sum(sizes_of(free)) == NUM_TOKENS
    *groups, rest = sizes_of(grouped)
    assert len(groups) >= 4
    assert all(size and size % 5 == 0 for size in groups)
    assert rest > 0
    # Else nothing would have been tested.
    assert len(set(sizes_of(free)[:-1])) > 1


def test_a_short_answer_is_one_chunk(fixed, model):
    for num_tokens in range(1, 5):
        assert sizes_of(stream(fixed, model, max_tokens=num_tokens)) == [num_tokens]


def test_every_token_has_its_logprobs(client, fixed, model):
    whole = complete(client, model, logprobs=2, max_tokens=NUM_TOKENS, extra_body={"ignore_eos": True})
    expected = whole.choices[0].logprobs
    chunks = [chunk.choices[0].logprobs for chunk in stream(fixed, model, logprobs=2)]
    assert [token for chunk in chunks for token in chunk.tokens] == expected.tokens
    assert [value for chunk in chunks for value in chunk.token_logprobs] == pytest.approx(
        expected.token_logprobs, abs=1e-3
    )
    assert [list(top) for chunk in chunks for top in chunk.top_logprobs] == [list(top) for top in expected.top_logprobs]


def test_a_stop_string_ends_at_the_same_token(client, fixed, model):
    whole = text_of(stream(client, model))
    stop = whole[len(whole) // 2 :][:6]
    free, grouped = (stream(each, model, stop=[stop]) for each in (client, fixed))
    assert text_of(grouped) == text_of(free) == whole[: whole.index(stop)]
    assert sum(sizes_of(grouped)) == sum(sizes_of(free)) < NUM_TOKENS
    assert grouped[-1].choices[0].finish_reason == "stop"


def test_the_prompts_tokens_come_once_and_with_the_first_group(client, fixed, model):
    options = {"extra_body": {"ignore_eos": True, "return_token_ids": True}}
    free, grouped = (stream(each, model, **options) for each in (client, fixed))
    expected = free[0].choices[0].model_extra["prompt_token_ids"]
    assert expected
    given = [chunk.choices[0].model_extra.get("prompt_token_ids") for chunk in grouped]
    assert given == [expected] + [None] * (len(grouped) - 1)


def test_chat_is_grouped_too(client, fixed, model):
    messages = [{"role": "user", "content": "a function that adds two numbers"}]
    options = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 0}
    options["extra_body"] = {"ignore_eos": True}
    whole = client.chat.completions.create(**options).choices[0].message.content
    chunks = [
        chunk for chunk in fixed.chat.completions.create(**options, stream=True, stream_options=USAGE) if chunk.choices
    ]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    # The first says who speaks, and nothing else.
    role, *rest = sizes_of(chunks)
    assert role == 0
    assert sum(rest) == 24
    assert all(size and size % 5 == 0 for size in rest[:-1])


def test_an_abort_mid_stream_leaves_nothing_behind(fixed, fixed_server, model):
    started = complete(fixed, model, max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    for _ in zip(range(3), started, strict=False):
        pass
    started.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and fixed_server.metrics()["vllm:num_requests_running"]:
        time.sleep(0.2)
    assert fixed_server.metrics()["vllm:num_requests_running"] == 0
    assert complete(fixed, model, prompt=PROMPT).usage.completion_tokens == 48
