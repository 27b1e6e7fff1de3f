"""With `stream_granularity: token` streams have the chunks that they have without drafts, also where a draft spans the
ends of reasoning and of tool calls. Drafts are an earlier answer to the same request.

With the default parsers get several tokens at once, and vLLM's may then say something else.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.e2e.conftest import OPTIONS
from tests.e2e.test_stream import sizes_of, stream, text_of
from tests.engine import reasoning
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

CONFIG = """
proposer: {method: cascade, proposers: [{method: prediction}, {method: suffix, shared: true, shared_scope: global}]}
draft_length: {policy: fixed, tokens: 8}
stream_granularity: token
"""
PARSERS = (
    *("--reasoning-parser-plugin", reasoning.__file__, "--reasoning-parser", "are"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    # Else the bundled target may write white space up to its last token.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
OFF = {"vllm_xargs": {"spec": "off"}}
QUESTION = "def walk(node):\n    for child in node.children:\n"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
CITIES = ({"city": "Oslo", "days": 3}, {"city": "Turin", "days": 5})
CALLS = "\n".join(
    f"<tool_call>\n{json.dumps({'name': 'get_weather', 'arguments': city})}\n</tool_call>" for city in CITIES
)
# The bundled target writes Python: it is made to write these calls, after the end of reasoning.
FORCED = re.escape(CALLS).replace("\\ ", " ")
REASONING_END = 374


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("parsers") / "plugin.yaml"
    path.write_text(CONFIG)
    with serve(str(path), extra_args=(*OPTIONS, *PARSERS)) as server:
        yield server


def accepted(server: Server) -> float:
    return server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]


def await_accepted(server: Server, before: float, more: int = 1) -> None:
    """Fails unless at least `more` draft tokens are accepted; the last step's counts come after its tokens."""
    deadline = time.monotonic() + 10
    while (found := accepted(server) - before) < more:
        assert time.monotonic() < deadline, f"{found} draft tokens were accepted"
        time.sleep(0.1)


def test_each_chunk_has_one_token_while_drafts_are_accepted(server: Server, client: openai.OpenAI, model: str) -> None:
    without = text_of(stream(client, model, extra_body={"ignore_eos": True} | OFF))
    before = accepted(server)
    chunks = stream(client, model)
    assert set(sizes_of(chunks)) == {1}
    await_accepted(server, before, 9)
    assert text_of(chunks) == without


def asked(client: openai.OpenAI, model: str, text: str, stream: bool = True, **options: Any) -> Any:
    forced = {"structured_outputs": {"regex": FORCED}, "logit_bias": {REASONING_END: 100}}
    body = forced if "tools" in options else {"ignore_eos": "response_format" not in options}
    return client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": text}],
        stream=stream,
        extra_body=body | options.pop("extra_body", {}),
        **{"max_tokens": 64, "temperature": 0} | options,
    )


def parts(chunks: Any) -> list[tuple[str, str, tuple[Any, ...], str | None]]:
    """Reasoning, content, calls and finish reason of each chunk."""
    found = []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        delta = choice.delta
        calls = tuple((call.index, call.function.name, call.function.arguments) for call in delta.tool_calls or ())
        reasoned = (delta.model_extra or {}).get("reasoning") or ""
        found.append((reasoned, delta.content or "", calls, choice.finish_reason))
    return found


def whole(chunks: list[tuple[str, str, tuple[Any, ...], str | None]]) -> Any:
    """Joins the chunks: content, reasoning, calls and finish reason."""
    calls: dict[int, list[str]] = {}
    for index, name, arguments in (call for chunk in chunks for call in chunk[2]):
        known = calls.setdefault(index, ["", ""])
        known[0], known[1] = known[0] + (name or ""), known[1] + (arguments or "")
    return "".join(c[0] for c in chunks), "".join(c[1] for c in chunks), calls, chunks[-1][3]


def test_a_reasoning_parser_sees_the_same(server: Server, client: openai.OpenAI, model: str) -> None:
    without = parts(asked(client, model, QUESTION, extra_body=OFF))
    assert all(whole(without)[:2])
    before = accepted(server)
    found = parts(asked(client, model, QUESTION))
    assert found == without
    await_accepted(server, before, 25)


def test_tool_calls_are_streamed_the_same(server: Server, client: openai.OpenAI, model: str) -> None:
    """Two calls, whose drafts span the ends of reasoning and of calls."""
    options: dict[str, Any] = {"tools": TOOLS, "max_tokens": 250}
    without = parts(asked(client, model, "Weather?", extra_body=OFF, **options))
    _, _, calls, reason = whole(without)
    assert [(name, json.loads(arguments)) for name, arguments in calls.values()] == [
        ("get_weather", city) for city in CITIES
    ]
    assert reason == "tool_calls"
    before = accepted(server)
    found = parts(asked(client, model, "Weather?", **options))
    assert found == without
    await_accepted(server, before, 51)


def test_responses_are_streamed_the_same(server: Server, client: openai.OpenAI, model: str) -> None:
    def events(**body: Any) -> tuple[list[tuple[str, str]], int, int]:
        found: list[Any] = list(
            client.responses.create(
                model=model, input=QUESTION, stream=True, max_output_tokens=64, temperature=0, extra_body=body
            )
        )
        usage = found[-1].response.usage
        said = [(event.type, getattr(event, "delta", "") or getattr(event, "text", "")) for event in found]
        return said, usage.output_tokens, usage.output_tokens_details.reasoning_tokens

    without = events(**OFF)
    assert without[0][-1][0] == "response.completed"
    assert 0 < without[2] < without[1]
    before = accepted(server)
    assert events() == without
    await_accepted(server, before, 25)
