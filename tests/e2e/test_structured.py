"""Structured answers and tool calls of a server that drafts from grammars are those without drafts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.conftest import OPTIONS
from tests.e2e.test_parsers import OFF, accepted, await_accepted, parts, whole
from tests.engine.arms import GRAMMAR
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

ARGUMENTS = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--structured-outputs-config", '{"backend": "xgrammar"}'),
)
# Else the bundled target may write blanks up to its last token.
PIECES = json.loads((model_path("target") / "tokenizer.json").read_text())["model"]["vocab"]
FEW_BLANKS = {"logit_bias": {token: -20 for piece, token in PIECES.items() if set(piece) <= set("\u0120\u010a")}}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Turin"]}, "number_of_days": {"enum": [3, 5]}},
    "required": ["city", "number_of_days"],
    "additionalProperties": False,
}
NAME = "get_weather_forecast"
TOOLS: list[Any] = [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA, "strict": True}}]
TAG = {"type": "tag", "begin": "<city>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</city>"}
FORMATS: dict[str, dict[str, Any]] = {
    "json_schema": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}},
    "structural_tag": {"type": "structural_tag", "format": TAG},
}
# With strict tools `auto` is constrained from the beginning of a call on, which the bundled target does not write.
CHOICES: dict[str, Any] = {
    "auto": "auto",
    "required": "required",
    "named": {"type": "function", "function": {"name": NAME}},
}
CASES: dict[str, dict[str, Any]] = {name: {"response_format": each} for name, each in FORMATS.items()} | {
    name: {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False} for name, choice in CHOICES.items()
}
LAWS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "seeded": {"temperature": 1.0, "seed": 3}}


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("structured") / "plugin.yaml"
    path.write_text(Path(GRAMMAR).read_text() + "stream_granularity: token\n")
    with serve(str(path), extra_args=(*OPTIONS, *ARGUMENTS)) as server:
        yield server


def asked(client: openai.OpenAI, model: str, options: dict[str, Any], body: dict[str, Any]) -> Any:
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    return client.chat.completions.create(model=model, messages=messages, max_tokens=120, extra_body=body, **options)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("case", CASES)
def test_answers_are_the_same(
    case: str, law: dict[str, Any], server: Server, client: openai.OpenAI, model: str
) -> None:
    """Streamed chunk by chunk, and at once."""
    options = CASES[case] | law | FEW_BLANKS

    def streamed(body: dict[str, Any]) -> list[Any]:
        return parts(asked(client, model, options | {"stream": True}, body))

    def said(body: dict[str, Any]) -> Any:
        answer = asked(client, model, options, body)
        [choice] = answer.choices
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        return choice.message.content, calls, choice.finish_reason, answer.usage.completion_tokens

    without, at_once = streamed(OFF), said(OFF)
    before = accepted(server)
    assert streamed({}) == without
    assert said({}) == at_once
    if case == "auto":
        return
    await_accepted(server, before, 10)
    _, content, calls, _ = whole(without)
    [text] = [arguments for _, arguments in calls.values()] or [content]
    value = json.loads(text.removeprefix("<city>").removesuffix("</city>"))
    assert value.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
