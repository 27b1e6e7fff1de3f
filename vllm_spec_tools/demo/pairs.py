"""Asks two servers the same, alternately, so that whatever else the machine does slows both."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openai import DefaultHttpxClient, OpenAI

from vllm_spec_tools.bench.prompts import lines_of
from vllm_spec_tools.engines.serving import Server

# Code like the bundled target's training data.
PROMPTS: tuple[str, ...] = tuple(lines_of(Path(__file__).with_name("prompts.jsonl")))
# What assistants are asked where answers repeat the question, in part.
CHATS: tuple[str, ...] = tuple(lines_of(Path(__file__).with_name("chats.jsonl")))
# A server's OpenMP threads spin this long after its last operator, on the other server's cores.
_SETTLE_SECONDS = 0.3


class Answer(NamedTuple):
    """A response: its text, output tokens, and seconds from sending the request to its end."""

    text: str
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Output tokens per second, the time to the first token included."""
        return self.tokens / self.seconds


class Pair(NamedTuple):
    """Answers without and with speculation to the same prompt, one right after the other."""

    prompt: int
    plain: Answer
    drafted: Answer

    @property
    def speedup(self) -> float:
        """Tokens per second with speculation over those without."""
        return self.drafted.rate / self.plain.rate

    @property
    def is_identical(self) -> bool:
        """Whether both answers are the same text."""
        return self.plain.text == self.drafted.text


def ask_in_pairs(
    servers: tuple[Server, Server],
    prompts: Sequence[str],
    rounds: int,
    max_tokens: int,
    show: Callable[[Pair], None],
    chat: bool = False,
) -> list[Pair]:
    """Asks each prompt `rounds` times, greedily, the servers taking turns at being first.

    Args:
        servers: without and with speculation. They may be one: it is then asked with `spec: off` and without.
        chat: whether prompts are a user's messages; else they are continued.

    Raises:
        OpenAIError: a request failed.
    """
    is_one = servers[0] is servers[1]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(_client(server)) for server in servers]

        def answer(which: int, prompt: str) -> Answer:
            options: dict[str, Any] = {"model": servers[which].model, "max_tokens": max_tokens, "temperature": 0}
            if is_one and which == 0:
                options["extra_body"] = {"vllm_xargs": {"spec": "off"}}
            time.sleep(_SETTLE_SECONDS)
            return _ask(clients[which], prompt, chat, options)

        # Warm-up: the first requests include lazy initialisation, and the policy learns what a step takes.
        for prompt in prompts[:2]:
            for which in (0, 1):
                answer(which, prompt)
        pairs = []
        for number in range(rounds):
            for index, prompt in enumerate(prompts):
                first = (number + index) % 2
                answers = {which: answer(which, prompt) for which in (first, 1 - first)}
                pairs.append(Pair(index, answers[0], answers[1]))
                show(pairs[-1])
    return pairs


def _ask(client: OpenAI, prompt: str, chat: bool, options: dict[str, Any]) -> Answer:
    start = time.perf_counter()
    found: Any
    if chat:
        found = client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
        text = found.choices[0].message.content or ""
    else:
        found = client.completions.create(prompt=prompt, **options)
        text = found.choices[0].text
    return Answer(text, found.usage.completion_tokens, time.perf_counter() - start)


def _client(server: Server) -> OpenAI:
    # No retry: a repeated request would be timed twice. No proxy: the server is local.
    http = DefaultHttpxClient(trust_env=False, timeout=600.0)
    return OpenAI(base_url=f"{server.base_url}/v1", api_key="not needed", max_retries=0, http_client=http)
