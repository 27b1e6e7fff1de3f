"""With `stream_granularity: token` a stream has the chunks that it has without drafts, also of a reasoning parser."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.conftest import OPTIONS, connect, served_model
from tests.e2e.test_stream import sizes_of, stream, text_of
from tests.engine import reasoning
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.serving import Server

pytestmark = pytest.mark.e2e

CONFIG = """
proposer: {method: cascade, proposers: [{method: prediction}, {method: suffix}]}
draft_length: {policy: fixed, tokens: 8}
stream_granularity: token
"""
PARSER = ("--reasoning-parser-plugin", reasoning.__file__, "--reasoning-parser", "are")
OFF = {"vllm_xargs": {"spec": "off"}}
QUESTION = "def walk(node):\n    for child in node.children:\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("single") / "plugin.yaml"
    path.write_text(CONFIG)
    with Server(model_path("target"), str(path), extra_args=(*OPTIONS, *PARSER)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return connect(server)


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    return served_model(client)


def test_each_chunk_has_one_token_while_drafts_are_accepted(server: Server, client: openai.OpenAI, model: str) -> None:
    before = server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]
    chunks = stream(client, model)
    assert set(sizes_of(chunks)) == {1}
    assert server.metrics()["vllm:spec_decode_num_accepted_tokens_total"] - before > 8
    assert text_of(chunks) == text_of(stream(client, model, extra_body={"ignore_eos": True} | OFF))


def test_a_reasoning_parser_sees_the_same_chunks_with_drafts_over_the_end_of_reasoning(
    server: Server, client: openai.OpenAI, model: str
) -> None:
    def chunks(**body: Any) -> list[tuple[str, str, str | None]]:
        """Reasoning, content and finish reason of each chunk."""
        found = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=64,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True} | body,
        )
        said: list[tuple[str, str, str | None]] = []
        for chunk in found:
            for choice in chunk.choices:
                delta = choice.delta.model_dump()
                said.append((delta.get("reasoning") or "", delta.get("content") or "", choice.finish_reason))
        return said

    without = chunks(**OFF)
    reasoned, answered = "".join(chunk[0] for chunk in without), "".join(chunk[1] for chunk in without)
    assert reasoned
    assert answered
    before = server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]
    predicted = {
        "prediction": {"type": "content", "content": f"# These are{reasoned} of{answered.removeprefix('# These')}"}
    }
    assert chunks(**predicted) == without
    assert server.metrics()["vllm:spec_decode_num_accepted_tokens_total"] - before > 24
