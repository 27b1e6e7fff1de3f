"""Built-in prompts: texts that repeat themselves, code, and random tokens."""

import random
from collections.abc import Sequence

from vllm_spec_tools.bench.prompts import PROMPTS
from vllm_spec_tools.engines.jobs import Tokens

_RANDOM_LENGTH = 12
_REPEATS = 5

# Each ends where it has been before, so that drafts exist at once; none goes on in one way only.
REPETITIVE = (
    '''
def check(a, b, c):
    """Check the arguments and return them."""
    if a is None:
        raise ValueError("a must not be None")
    if b is None:
        raise ValueError("b must not be None")
    if c is None:
        raise''',
    '''
class Cache:
    """A cache of values by key."""

    def get(self, key, default=None):
        if key in self.data:
            return self.data[key]
        return default

    def pop(self, key, default=None):
        if key in self.data:
            return self.data''',
    '''
class Point:
    def __init__(self, name, value, size, parent=None):
        """Initialize the point."""
        self.name = name
        self.value = value
        self.size = size
        self.parent = parent

    def copy(self):
        self.name =''',
    """
import os
import sys

def main(args):
    for name in args:
        print(name)
        print(os.path.join(name))
    for name in sys.argv:
        print(name)
        print(os.path.""",
)
# Goes on with tokens that it has just had: what penalties count.
DASHES = "# ------------------------------\n# ------------------------------\n# -----"
# What JSON is asked after: drafts can be copied from it.
JSON_PROMPT = "Settings in JSON:\n" + '[{"name":"self","size":true},{"name":"value","size":false}]\n' * 3


def built_in() -> list[str]:
    """Texts that repeat themselves, then code that does not."""
    return [DASHES, *REPETITIVE, *PROMPTS]


def random_prompts(vocabulary: Sequence[int], count: int) -> list[Tokens]:
    """Random tokens that repeat themselves, and end within the pattern; seed 0.

    Args:
        vocabulary: token ids to choose from; a model may not take all of its own.
    """
    rng = random.Random(0)
    prompts = []
    for _ in range(count):
        pattern = rng.choices(vocabulary, k=_RANDOM_LENGTH)
        # A second pattern with the same first half: what follows is known in two ways.
        other = [*pattern[: _RANDOM_LENGTH // 2], *rng.choices(vocabulary, k=_RANDOM_LENGTH // 2)]
        prompts.append((*(pattern + other) * _REPEATS, *pattern[: _RANDOM_LENGTH // 2]))
    return prompts


def shaped_for_greedy(prompts: Sequence[Tokens], count: int, longest: int) -> list[Tokens]:
    """Prompts of mixed length: each as it is, cut short, or continued by the next ones; seed 0."""
    rng = random.Random(0)
    shaped = []
    for number in range(count):
        text = prompts[number % len(prompts)]
        if number >= len(prompts):
            others = [prompts[rng.randrange(len(prompts))] for _ in range(rng.randrange(3))]
            text = tuple(token for part in (text, *others, text) for token in part)
        length = longest if rng.random() < 0.8 else rng.randrange(1, 40)
        shaped.append(text[-length:])
    return shaped
