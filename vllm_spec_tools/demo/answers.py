"""Streams one answer, with the time of each piece."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from openai import OpenAI

# Code like the bundled target's training data.
PROMPTS = (
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef read_lines(path):\n    with open(path) as file:\n",
    "    def visit_Add(self, node):\n        self.generic_visit(node)\n\n"
    "    def visit_Sub(self, node):\n        self.generic_visit(node)\n\n    def visit_Mult(self, node):\n",
    'def parse_args(argv):\n    parser = argparse.ArgumentParser()\n    parser.add_argument("--verbose",',
    "    def __lt__(self, other):\n        return self.value < other.value\n\n"
    "    def __le__(self, other):\n        return self.value <= other.value\n\n    def __gt__(self, other):\n",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
)


class Piece(NamedTuple):
    """A part of an answer.

    Attributes:
        seconds: since the request was sent.
    """

    seconds: float
    text: str
    tokens: int


@dataclass(frozen=True)
class Answer:
    """A response in pieces.

    Attributes:
        pieces: in order.
    """

    pieces: Sequence[Piece]
    seconds: float

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        """Number of output tokens."""
        return max((piece.tokens for piece in self.pieces), default=0)

    @property
    def rate(self) -> float:
        """Output tokens per second, the time to the first token included."""
        return self.tokens / self.seconds

    def until(self, seconds: float) -> "Answer":
        """Returns what there was of it after some seconds."""
        if seconds >= self.seconds:
            return self
        return Answer([piece for piece in self.pieces if piece.seconds <= seconds], max(seconds, 1e-3))


def ask(client: OpenAI, model: str, prompt: str, max_tokens: int, *, drafts_off: bool = False) -> Answer:
    """Completes a prompt greedily; `drafts_off` is for servers with the plugin.

    Raises:
        OpenAIError: the request failed.
    """
    pieces = []
    start = time.perf_counter()
    stream = client.completions.create(
        model=model,
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        # Counts tokens in each piece: a step with accepted drafts sends several at once.
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        | ({"vllm_xargs": {"spec": "off"}} if drafts_off else {}),
    )
    for chunk in stream:
        text = "".join(choice.text for choice in chunk.choices)
        pieces.append(Piece(time.perf_counter() - start, text, chunk.usage.completion_tokens if chunk.usage else 0))
    return Answer(pieces, time.perf_counter() - start)
