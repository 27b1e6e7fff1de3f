"""Asks a server, and times its answer."""

import time
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
