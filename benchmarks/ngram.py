"""Proposers of repeated text by themselves, drafting texts that are known: what they cost, and what a step gains."""

import importlib.util
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
from vllm_spec_plugin.proposers.suffix.store import TextStore

Tokens = npt.NDArray[np.int32]

VOCAB_SIZE = 32_768
SYNTHETIC = "synthetic"
_SCOPE = "one"
# vLLM's suffix method needs this package. Its settings there: depth of the trees, draft tokens per matched one, and
# minimum probability.
_ARCTIC = "arctic_inference"
_DEPTH, _FACTOR, _MIN_PROBABILITY = 24, 1.0, 0.1
# Of the workloads made of source files: files, requests of a conversation, and lines that each adds to its answer.
_FILES, _TURNS, _LINES = 12, 6, 12
_MOST_LINES = 160
CHANGED_LINES = 0.05
# What a request of an agent adds before the answer.
INSTRUCTION = "# Continue this file and print all of it.\n"


def changed_lines(lines: Sequence[str], others: Sequence[str], rng: random.Random) -> list[str]:
    """Returns the lines, at least one, with 5% of them, at least one, replaced by others, at least two."""
    changed = list(lines)
    for i in rng.sample(range(len(lines)), max(1, round(CHANGED_LINES * len(lines)))):
        changed[i] = rng.choice([line for line in others if line != lines[i]])
    return changed


@dataclass(frozen=True)
class Known:
    """A request whose answer is known.

    Attributes:
        prompt: [num_tokens] int32.
        answer: [num_tokens] int32, what the target says.
    """

    prompt: Tokens
    answer: Tokens


class ArcticProposer:
    """vLLM's suffix method: the suffix trees of arctic-inference, called as vLLM calls them.

    Args:
        num_texts: maximum finished texts that are kept.

    Attributes:
        num_bytes: unknown.
    """

    num_bytes = 0

    def __init__(self, num_texts: int) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache  # type: ignore[import-not-found,unused-ignore]

        self._cache = SuffixDecodingCache(_DEPTH, num_texts)
        self._lengths: dict[str, int] = {}

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order."""
        return [self._draft(request) for request in requests]

    def finish(self, request_id: str) -> None:
        """Keeps the response."""
        self._cache.stop_request(request_id)
        del self._lengths[request_id]

    def _draft(self, view: RequestView) -> Draft:
        name, text, known = view.request_id, view.token_ids, self._lengths.get(view.request_id)
        if known is None:
            self._cache.start_request(name, text)
        elif len(text) > known:
            self._cache.add_active_response(name, text[known:])
        self._lengths[name] = len(text)
        found = self._cache.speculate(
            name,
            text[-_DEPTH:],
            max_spec_tokens=view.num_draft_tokens,
            max_spec_factor=_FACTOR,
            min_token_prob=_MIN_PROBABILITY,
        )
        return Draft(found.token_ids)


RepeatProposer = SuffixProposer | ArcticProposer


def proposers(min_order: int, min_probability: float, shared_tokens: int) -> Mapping[str, Callable[[], RepeatProposer]]:
    """Returns what makes the proposer of each arm; vLLM's are there if arctic-inference is installed.

    Args:
        min_order: fewest tokens that must match.
        min_probability: below which a suffix draft ends.
        shared_tokens: most tokens of earlier texts that the arms "shared" keep.
    """

    def suffix(*, shared: bool = False) -> SuffixProposer:
        store = TextStore(shared_tokens, VOCAB_SIZE) if shared else None
        return SuffixProposer(min_order, min_probability, VOCAB_SIZE, store)

    own: dict[str, Callable[[], RepeatProposer]] = {
        "suffix": suffix,
        "suffix, shared": lambda: suffix(shared=True),
    }
    if importlib.util.find_spec(_ARCTIC) is None:
        return own
    return own | {"vLLM's suffix": lambda: ArcticProposer(0), "vLLM's suffix, shared": lambda: ArcticProposer(10_000)}


def synthetic_text(num_tokens: int, rng: np.random.Generator) -> Tokens:
    """Zipf-distributed tokens, about half of them in phrases that come back: [num_tokens] int32."""
    tokens = np.minimum(rng.zipf(1.2, num_tokens), VOCAB_SIZE) - 1
    phrases = [tokens[at : at + length] for at, length in rng.integers((0, 3), (num_tokens - 12, 13), (500, 2))]
    stream, at = np.empty(num_tokens + 12, np.int64), 0
    while at < num_tokens:
        piece = phrases[min(rng.zipf(1.3) - 1, 499)] if rng.random() < 0.5 else rng.choice(tokens, 8)
        stream[at : at + len(piece)] = piece
        at += len(piece)
    return stream[:num_tokens].astype(np.int32)


def source_texts(sources: Sequence[str], encode: Callable[[str], list[int]], seed: int) -> dict[str, list[Known]]:
    """Requests made from source files, in the order in which they come.

    `code` goes on with a file after its first half. `edit` prints the prompt's file with 5% of its lines taken from
    other files. In `agent` each answer is the last one with further lines, and each prompt has all that was said
    before; in `again` the prompts are the same, and only earlier answers say what comes.

    Args:
        sources: texts of files.
        encode: a tokenizer.
        seed: of the choice of files and changed lines.
    """
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    files = [lines for text in sources if len(lines := text.splitlines(keepends=True)) >= _TURNS * _LINES]
    chosen = [files[place][:_MOST_LINES] for place in rng.permutation(len(files))[:_FILES]]
    others = sorted({line for lines in files for line in lines})

    def known(prompt: str, answer: str) -> Known:
        return Known(np.array(encode(prompt), np.int32), np.array(encode(answer), np.int32))

    found: dict[str, list[Known]] = {name: [] for name in ("code", "edit", "agent", "again")}
    for lines in chosen:
        half = len(lines) // 2
        found["code"].append(known("".join(lines[:half]), "".join(lines[half:])))
        found["edit"].append(known("".join(lines), "".join(changed_lines(lines, others, chance))))
        said = ""
        for count in range(_LINES, (_TURNS + 1) * _LINES, _LINES):
            answer = "".join(lines[:count])
            found["agent"].append(known(said + INSTRUCTION, answer))
            found["again"].append(known(INSTRUCTION, answer))
            said += INSTRUCTION + answer
    return found


def fill(proposer: RepeatProposer, text: Tokens, size: int) -> None:
    """Shows a proposer a text in pieces of `size` tokens, each of a request that ends."""
    for at in range(0, len(text), size):
        name = f"ended {at}"
        proposer.propose([RequestView(name, text[at : at + size], 1, np.zeros(1), scope=_SCOPE)])
        proposer.finish(name)


def simulate(proposer: RepeatProposer, requests: Sequence[Known], num_draft_tokens: int) -> dict[str, float]:
    """Answers requests one after the other: a step's drafts are checked against what follows, and give one token more.

    Args:
        proposer: what drafts.
        requests: in their order; all of one scope, some with more than one step.
        num_draft_tokens: most tokens of a draft.

    Returns:
        accepted, drafted: draft tokens per step, up to each draft's first wrong one, and all. step, step p99: median
        and 99th percentile of seconds per step, without each request's first. first step: mean seconds,
        in which the prompt is read. bytes: memory held before the last request ends.
    """
    rng = np.random.default_rng(0)
    accepted = drafted = 0
    first: list[float] = []
    later: list[float] = []
    num_bytes = 0
    for number, request in enumerate(requests):
        text, length = np.concatenate([request.prompt, request.answer]), len(request.prompt)
        seconds = first
        while length < len(text):
            count = min(num_draft_tokens, len(text) - length)
            view = RequestView(str(number), text[:length], count, rng.random(count), scope=_SCOPE)
            begin = time.perf_counter()
            [draft] = proposer.propose([view])
            seconds.append(time.perf_counter() - begin)
            seconds = later
            right = _num_right(draft.token_ids, text[length:])
            accepted, drafted = accepted + right, drafted + len(draft.token_ids)
            length += right + 1
        num_bytes = proposer.num_bytes
        proposer.finish(str(number))
    steps = len(first) + len(later)
    step, p99 = np.percentile(later, (50, 99)).tolist()
    return {
        "accepted": accepted / steps,
        "drafted": drafted / steps,
        "step": step,
        "step p99": p99,
        "first step": sum(first) / len(first),
        "bytes": num_bytes,
    }


def _num_right(token_ids: Sequence[int], following: Tokens) -> int:
    """Counts the drafted tokens up to the first wrong one."""
    matches = np.array(token_ids, np.int32) == following[: len(token_ids)]
    return int(np.cumprod(matches).sum())
