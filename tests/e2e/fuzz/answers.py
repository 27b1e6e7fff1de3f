"""Sends requests with the OpenAI client, and compares answers."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import openai

from tests.e2e.fuzz.cases import Case

# Of logprobs: the two passes have batches of different sizes.
_TOLERANCE = 2e-3
# What differs from one answer to the next, and what is about drafts.
_OWN = {"id", "created", "created_at", "completed_at", "metrics", "request_id", "completion_tokens_details", "metadata"}
_OWN |= {"prompt_tokens_details", "input_tokens_details", "item_id", "user"}


@dataclass
class Answer:
    """An answer of the server.

    Attributes:
        status: of HTTP; 0 where the client left.
        message: of an error.
        choices: what a client can compare, by choice; a stream's are joined.
        prompt: tokens of the prompt; empty where the endpoint does not return them.
    """

    status: int
    message: str = ""
    choices: list[dict[str, Any]] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)

    @property
    def token_ids(self) -> list[list[int] | None]:
        """Output tokens of each choice; None where the endpoint does not return them."""
        return [choice.get("token_ids") for choice in self.choices]


async def send(client: openai.AsyncOpenAI, model: str, case: Case, body: dict[str, Any]) -> Answer:
    """Sends one of a case's bodies.

    Raises:
        APIError: any answer but 200 and 400, that of a stream included.
    """
    required = {"completions": "prompt", "chat": "messages", "responses": "input"}[case.endpoint]
    given = {name: value for name, value in body.items() if name not in (required, "stream")}
    arguments = {required: body[required], "model": model, "stream": body["stream"], "extra_body": given}
    create: Any = {
        "completions": client.completions.create,
        "chat": client.chat.completions.create,
        "responses": client.responses.create,
    }[case.endpoint]
    try:
        if not body["stream"]:
            seconds = case.leaves_after and case.leaves_after / 20
            return _answer(case.endpoint, (await asyncio.wait_for(create(**arguments), seconds)).model_dump())
        answer = await create(**arguments)
        chunks = []
        async for chunk in answer:
            chunks.append(chunk.model_dump())
            if len(chunks) == case.leaves_after:
                await answer.close()
                return Answer(0)
        if case.endpoint == "responses":
            return _answer(case.endpoint, chunks[-1]["response"])
        return _joined(chunks)
    except TimeoutError:
        return Answer(0)
    except openai.APIError as error:
        # vLLM checks some parameters when the stream has begun: the error is its first chunk.
        if isinstance(error.body, dict) and error.body.get("code") == 400:
            return Answer(400, error.message)
        raise


def _answer(endpoint: str, whole: dict[str, Any]) -> Answer:
    choices = whole["output"] if endpoint == "responses" else whole["choices"]
    prompt = whole.get("prompt_token_ids") or (choices or [{}])[0].get("prompt_token_ids") or []
    return Answer(200, choices=[_plain(choice) for choice in choices], prompt=prompt)


def _plain(value: Any) -> Any:
    """Leaves out what may differ, and what is not there."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _plain(each) for name, each in value.items() if name not in _OWN}
    return {name: each for name, each in kept.items() if each not in (None, [], {})}


def _joined(chunks: list[dict[str, Any]]) -> Answer:
    """Joins a stream's chunks: texts and lists one after the other."""
    choices: dict[int, dict[str, Any]] = {}
    prompt: list[int] = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            prompt = prompt or chunk.get("prompt_token_ids") or choice.get("prompt_token_ids") or []
            _add(choices.setdefault(choice["index"], {}), _plain(choice))
    return Answer(200, choices=[choices[index] for index in sorted(choices)], prompt=prompt)


def _add(whole: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            _add(whole.setdefault(name, {}), value)
        elif isinstance(value, list):
            whole.setdefault(name, []).extend(value)
        elif isinstance(value, str) and name in ("text", "content", "reasoning", "arguments"):
            whole[name] = whole.get(name, "") + value
        else:
            whole[name] = value


def differences(found: Any, expected: Any, where: str = "") -> Iterator[str]:
    """Yields where two answers differ: numbers by more than rounding, and all else at all."""
    if isinstance(found, dict) and isinstance(expected, dict):
        if where.endswith((".top_logprobs", "]")) and all(isinstance(v, float) for v in [*found.values()]):
            # The last of the likeliest tokens may be another one of equal probability.
            yield from differences(sorted(found.values()), sorted(expected.values()), where)
            return
        for name in sorted(found.keys() | expected.keys()):
            yield from differences(found.get(name), expected.get(name), f"{where}.{name}")
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{where}: {len(found)} entries, not {len(expected)}"
        if where.endswith(".top_logprobs") and all(isinstance(each, dict) and "logprob" in each for each in found):
            # As above; of what a grammar masks, all have the same.
            found, expected = ([each["logprob"] for each in own] for own in (found, expected))
        for number, pair in enumerate(zip(found, expected, strict=False)):
            yield from differences(*pair, f"{where}[{number}]")
    elif isinstance(found, float) and isinstance(expected, float | int):
        if not math.isclose(found, expected, rel_tol=0, abs_tol=_TOLERANCE):
            yield f"{where}: {found}, not {expected}"
    elif found != expected:
        yield f"{where}: {found!r}, not {expected!r}"
