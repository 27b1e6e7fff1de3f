"""The proposers of repeated text by themselves, on synthetic text: what they cost, and how often they are right."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.ngram.proposer import DraftSampling, Mode, NgramProposer
from vllm_spec_plugin.proposers.ngram.shared import SharedTexts
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
from vllm_spec_plugin.proposers.suffix.store import TextStore

RepeatProposer = NgramProposer | SuffixProposer

MAX_NEW_TOKENS = 4
SCOPE = "one"


@dataclass(frozen=True)
class Variants:
    """What the proposers are made with.

    Attributes:
        min_order: fewest tokens that must match.
        max_order: most tokens that lookup and frequency match.
        window: tokens that frequency counts.
        vocab_size: of the target.
        shared_tokens: most tokens of ended texts that are kept.
        min_probability: below which a suffix draft ends.
    """

    min_order: int
    max_order: int
    window: int
    vocab_size: int
    shared_tokens: int
    min_probability: float

    def proposers(self) -> dict[tuple[str, str], Callable[[], RepeatProposer]]:
        """Returns what makes each proposer, by mode and sampling; "+ shared" has a store of earlier texts."""

        def ngram(mode: Mode, sampling: DraftSampling, shared: bool = False) -> NgramProposer:
            # The orders of frequency count the token that follows too.
            least, most = (order + (mode == "frequency") for order in (self.min_order, self.max_order))
            texts = SharedTexts(least, most, self.shared_tokens, self.vocab_size) if shared else None
            return NgramProposer(mode, least, most, self.window, sampling, self.vocab_size, texts)

        def suffix(sampling: DraftSampling, shared: bool = False) -> SuffixProposer:
            store = TextStore(self.shared_tokens, self.vocab_size) if shared else None
            return SuffixProposer(self.min_order, self.min_probability, sampling, self.vocab_size, store)

        return {
            ("lookup", "greedy"): lambda: ngram("lookup", "greedy"),
            ("frequency", "greedy"): lambda: ngram("frequency", "greedy"),
            ("suffix", "greedy"): lambda: suffix("greedy"),
            ("frequency", "sample"): lambda: ngram("frequency", "sample"),
            ("suffix", "sample"): lambda: suffix("sample"),
            ("lookup + shared", "greedy"): lambda: ngram("lookup", "greedy", shared=True),
            ("suffix + shared", "greedy"): lambda: suffix("greedy", shared=True),
        }


@dataclass(frozen=True)
class Measurement:
    """What one variant cost and achieved.

    Attributes:
        indexing_ms: milliseconds per request to take in its whole text at the first step.
        step_us: [steps] microseconds per request of each later step.
        right: how many drafted tokens were what followed, up to each draft's first wrong one.
        drafted: how many tokens were drafted.
        num_bytes: memory held at the end.
    """

    indexing_ms: float
    step_us: npt.NDArray[np.float64]
    right: int
    drafted: int
    num_bytes: int


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
    proposer: RepeatProposer, texts: list[npt.NDArray[np.int32]], context: int, steps: int, num_draft_tokens: int
) -> Measurement:
    """Runs one proposer over `texts`, each beginning with `context` tokens and at least as long as needed."""
    rng = np.random.default_rng(1)

    def views(length: int) -> list[RequestView]:
        return [
            RequestView(str(index), text[:length], num_draft_tokens, rng.random(num_draft_tokens), scope=SCOPE)
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
            right += num_right(draft.token_ids, text[length:])
            drafted += len(draft.token_ids)
    return Measurement(indexing, np.array(seconds) / len(texts) * 1e6, right, drafted, proposer.num_bytes)


def num_right(token_ids: Sequence[int], following: npt.NDArray[np.int32]) -> int:
    """How many drafted tokens are those that follow, up to the first wrong one."""
    matches = np.array(token_ids, np.int32) == following[: len(token_ids)]
    return int(np.cumprod(matches).sum())


def fill(proposer: RepeatProposer, texts: Iterable[npt.NDArray[np.int32]]) -> None:
    """Shows a proposer texts that end."""
    for index, text in enumerate(texts):
        name = f"ended {index}"
        proposer.propose([RequestView(name, text, 1, np.zeros(1), scope=SCOPE)])
        proposer.finish(name)
