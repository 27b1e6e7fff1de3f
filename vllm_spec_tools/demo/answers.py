"""Asks a server, and times its answer."""

import time
from pathlib import Path
from typing import Any, NamedTuple

from vllm_spec_tools.bench.prompts import lines_of

# Code like the bundled target's training data.
PROMPTS: tuple[str, ...] = tuple(lines_of(Path(__file__).with_name("prompts.jsonl")))
# What assistants are asked where answers repeat the question, in part.
CHATS: tuple[str, ...] = tuple(lines_of(Path(__file__).with_name("chats.jsonl")))


class Answer(NamedTuple):
    """A response: its text, output tokens, and seconds from sending the request to its end."""

    text: str
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Output tokens per second, the time to the first token included."""
        return self.tokens / self.seconds


def ask(
    client: Any, model: str, prompt: str, max_tokens: int, *, chat: bool = False, drafts_off: bool = False
) -> Answer:
    """Completes a prompt greedily, or answers it as a `chat`; `drafts_off` is for servers with the plugin.

    Args:
        client: an `OpenAI`.

    Raises:
        OpenAIError: the request failed.
    """
    options: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "temperature": 0}
    if drafts_off:
        options["extra_body"] = {"vllm_xargs": {"spec": "off"}}
    start = time.perf_counter()
    if chat:
        found = client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
    else:
        found = client.completions.create(prompt=prompt, **options)
    seconds, [choice] = time.perf_counter() - start, found.choices
    text = (choice.message.content or "") if chat else choice.text
    return Answer(text, found.usage.completion_tokens, seconds)
