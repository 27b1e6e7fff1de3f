"""The n-gram proposer by itself, on synthetic text: what it costs, and how often it is right."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.ngram.proposer import DraftSampling, Mode, NgramProposer

VARIANTS: tuple[tuple[Mode, DraftSampling], ...] = (
    ("lookup", "greedy"),
    ("frequency", "greedy"),
    ("frequency", "sample"),
)
MAX_NEW_TOKENS = 4


@dataclass(frozen=True)
class Measurement:
    """What one variant cost and achieved.

    Attributes:
        indexing_ms: milliseconds per request to take in its whole text at the first step.
        step_us: [steps] microseconds per request of each later step.
        right: how many drafted tokens were what followed, up to each draft's first wrong one.
        drafted: how many tokens were drafted.
    """

    indexing_ms: float
    step_us: npt.NDArray[np.float64]
    right: int
    drafted: int


def text_stream(num_tokens: int, vocab_size: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Zipf-distributed tokens, about half of them in phrases that come back: [num_tokens] int32."""
    tokens = np.minimum(rng.zipf(1.2, num_tokens), vocab_size) - 1
    phrases = [tokens[at : at + length] for at, length in rng.integers((0, 3), (num_tokens - 12, 13), (500, 2))]
    stream, at = np.empty(num_tokens + 12, np.int64), 0
    while at < num_tokens:
        piece = phrases[min(rng.zipf(1.3) - 1, 499)] if rng.random() < 0.5 else rng.choice(tokens, 8)
        stream[at : at + len(piece)] = piece
        at += len(piece)
    return stream[:num_tokens].astype(np.int32)


def text_lengths(context: int, steps: int, rng: np.random.Generator) -> Iterator[int]:
    """How long a request's text is at each step, 1 to 4 tokens more each time."""
    length = context
    for _ in range(steps):
        length += int(rng.integers(1, MAX_NEW_TOKENS + 1))
        yield length


def measure(
    proposer: NgramProposer, texts: list[npt.NDArray[np.int32]], context: int, steps: int, num_draft_tokens: int
) -> Measurement:
    """Runs one proposer over `texts`, each beginning with `context` tokens and at least as long as needed."""
    rng = np.random.default_rng(1)

    def views(length: int) -> list[RequestView]:
        return [
            RequestView(str(index), text[:length], num_draft_tokens, rng.random(num_draft_tokens))
            for index, text in enumerate(texts)
        ]

    fresh = views(context)
    begin = time.perf_counter()
    proposer.propose(fresh)
    indexing = (time.perf_counter() - begin) / len(texts) * 1e3
    seconds, right, drafted = [], 0, 0
    for length in text_lengths(context, steps, rng):
        requests = views(length)
        begin = time.perf_counter()
        drafts = proposer.propose(requests)
        seconds.append(time.perf_counter() - begin)
        for draft, text in zip(drafts, texts, strict=True):
            matches = np.array(draft.token_ids, np.int32) == text[length : length + len(draft.token_ids)]
            right += int(np.cumprod(matches).sum())
            drafted += len(matches)
    return Measurement(indexing, np.array(seconds) / len(texts) * 1e6, right, drafted)
