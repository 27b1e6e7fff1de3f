"""What the mock server reads and writes: words for tokens, and a text that is a function of seed and prompt."""

import random
import zlib
from collections.abc import Sequence
from itertools import product

_STARTS = "bdfghklmnprstvwz"
# A few of more than one byte: a client that splits bytes anywhere meets split characters.
_ENDS = ("a", "e", "i", "o", "u", "an", "en", "in", "on", "un", "ar", "er", "ir", "é", "ö", "語")
# A token is a word with a space before it; its id is its index.
WORDS = tuple(start + end for start, end in product(_STARTS, _ENDS))
_IDS = {word: token for token, word in enumerate(WORDS)}
_VOCAB_SIZE = 32000


def tokenize(text: str) -> tuple[int, ...]:
    """Token ids of a text, one per word between spaces; words that the server never writes get ids above its own."""
    unknown = _VOCAB_SIZE - len(WORDS)
    return tuple(
        _IDS[word] if word in _IDS else len(WORDS) + zlib.crc32(word.encode(errors="replace")) % unknown
        for word in text.split()
    )


def detokenize(tokens: Sequence[int]) -> str:
    """The text of tokens that the server wrote."""
    return "".join(f" {WORDS[token]}" for token in tokens)


def continuation(prompt: Sequence[int], num_tokens: int, seed: int) -> tuple[int, ...]:
    """The tokens that follow a prompt: the same ones each time, and with fewer tokens the beginning of them.

    Sampling parameters do not matter: at every temperature the answer is the greedy one.
    """
    rng = random.Random(f"text {seed} {list(prompt)}")
    return tuple(int(rng.random() * len(WORDS)) for _ in range(num_tokens))
