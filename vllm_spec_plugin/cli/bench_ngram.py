"""`vllm-spec bench ngram`: what the n-gram proposer costs per request and step on this machine."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

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


def bench_ngram(
    context: Annotated[int, typer.Option(min=64, help="Tokens of text each request starts with.")] = 32768,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure, of 1 to 4 new tokens each.")] = 2000,
    num_draft_tokens: Annotated[int, typer.Option(min=1, help="K, the most tokens drafted per step.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Requests per call in the batched rows.")] = 8,
    min_order: Annotated[int, typer.Option(min=1, help="Shortest n-gram used.")] = 1,
    max_order: Annotated[int, typer.Option(min=1, help="Longest n-gram used.")] = 4,
    window: Annotated[int, typer.Option(min=1, help="Tokens counted by mode frequency.")] = 32768,
    vocab_size: Annotated[int, typer.Option(min=2, help="Vocabulary of the synthetic text.")] = 32768,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic text.")] = 0,
) -> None:
    """Time the n-gram proposer per request and step, on synthetic text with repeated phrases.

    "index" is the first step of a request, which takes in its whole prompt. "right" is the share of
    drafted tokens that were what followed, up to the first wrong one of each draft.
    """
    rng = np.random.default_rng(seed)
    texts = [text_stream(context + MAX_NEW_TOKENS * steps + num_draft_tokens, vocab_size, rng) for _ in range(batch)]
    table = Table(title=f"n-gram proposer: {context} tokens of context, K={num_draft_tokens}, {steps} steps")
    for header in ("mode", "sampling", "batch", "median µs", "p99 µs", "right, %", "index, ms"):
        table.add_column(header, justify="left" if header in ("mode", "sampling") else "right")
    for mode, sampling in VARIANTS:
        for size in sorted({1, batch}):
            try:
                proposer = NgramProposer(mode, min_order, max_order, window, sampling, vocab_size)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
            result = measure(proposer, texts[:size], context, steps, num_draft_tokens)
            median, p99 = np.percentile(result.step_us, (50, 99))
            right = f"{100 * result.right / result.drafted:.1f}" if result.drafted else "-"
            table.add_row(mode, sampling, str(size), f"{median:.1f}", f"{p99:.1f}", right, f"{result.indexing_ms:.1f}")
    Console().print(table)
