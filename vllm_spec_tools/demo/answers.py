"""Asks a server, and notes when each piece of its answer came."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
# What assistants are asked where answers repeat the question, in part.
CHATS = (
    "Add type hints and return the whole function:\n\n"
    "def total(prices, taxes, discount):\n    result = 0\n    for price, tax in zip(prices, taxes):\n"
    "        result = result + price * (1 + tax)\n    result = result - discount\n    return result",
    "Correct the spelling, and change nothing else:\n\nYesterday we went to teh market to bye apples, pears and plums. "
    "The wether was fine, so we walked home along the river and eight the plums on teh way.",
    "Give me as JSON the name, age and city of each person: Anna is 31 and lives in Oslo, Bruno is 45 and lives in "
    "Turin, Chloe is 28 and lives in Lyon, David is 52 and lives in Leeds.",
    "Why is the sky blue?",
    "Write this list again, sorted by name: pear 3, apple 7, plum 12, cherry 30, fig 5, banana 4, orange 9, kiwi 8.",
    "Summarise in one sentence: The committee met on Monday to discuss the new bridge. After three hours the members "
    "agreed that the bridge would be built of steel, that it would cost nine million, and that work would "
    "begin in spring.",
)


class Piece(NamedTuple):
    """A part of an answer."""

    seconds: float
    text: str
    tokens: int


@dataclass(frozen=True)
class Answer:
    """A response in pieces."""

    pieces: Sequence[Piece]
    seconds: float

    @property
    def text(self) -> str:
        """Joins the text of all pieces."""
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


def ask(
    client: Any, model: str, prompt: str, max_tokens: int, *, chat: bool = False, drafts_off: bool = False
) -> Answer:
    """Completes a prompt greedily, or answers it as a `chat`; `drafts_off` is for servers with the plugin.

    Args:
        client: an `OpenAI`.

    Raises:
        OpenAIError: the request failed.
    """
    # Counts tokens in each piece: a step with accepted drafts sends several at once.
    extra: dict[str, object] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    if drafts_off:
        extra["vllm_xargs"] = {"spec": "off"}
    options = {"model": model, "max_tokens": max_tokens, "temperature": 0, "stream": True, "extra_body": extra}
    pieces = []
    start = time.perf_counter()
    if chat:
        chunks = client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
    else:
        chunks = client.completions.create(prompt=prompt, **options)
    for chunk in chunks:
        text = "".join((choice.delta.content or "") if chat else choice.text for choice in chunk.choices)
        tokens = chunk.usage.completion_tokens if chunk.usage else 0
        pieces.append(Piece(time.perf_counter() - start, text, tokens))
    return Answer(pieces, time.perf_counter() - start)
