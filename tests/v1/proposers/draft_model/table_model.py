"""A draft model that is a table of token pairs, on a KV cache that knows what it was computed from, and its oracle."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from tests.v1.proposers.draft_model.pool import DraftKV, Pool, Request, Tables
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage
from vllm_spec_plugin.v1.proposers.draft_model.proposer import DraftModelProposer

VOCAB_SIZE = 12
BLOCK_SIZE = 4
NUM_BLOCKS = 1200


class TableEngine:
    """A `DraftEngine` that looks up logits by the last two tokens, as they are found in the KV cache.

    Every pass is checked: each token must be computed over the whole text before it, in slots of its
    own request, and rows and drafts must belong together.

    Attributes:
        coverage: see `DraftEngine`.
        max_len: see `DraftEngine`.
        table: [VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE], logits by last but one and last token.
        batch: the step's requests.
        passes: tokens computed per forward pass.
        num_computed: tokens of texts computed per request in the last step.
        broken: name of a method that raises, after so many calls that do not.
    """

    def __init__(self, max_len: int = 1000, seed: int = 0, spread: float = 2.0) -> None:
        """A table of normal logits."""
        self.coverage = DraftCoverage(NUM_BLOCKS, [BLOCK_SIZE])
        self.max_len = max_len
        generator = torch.Generator().manual_seed(seed)
        shape = (VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE)
        self.table = torch.randn(shape, generator=generator) * spread
        self.batch: Sequence[Request] = []
        self.passes: list[int] = []
        self.num_computed: dict[str, int] = {}
        self.broken: tuple[str, int] | None = None
        self._kv = DraftKV(NUM_BLOCKS, [BLOCK_SIZE])
        # Sequences: whose, its text and drafts, and the blocks it sees.
        self._live: list[tuple[Request, list[int], Tables]] = []
        self._steps_left = 0

    def block_tables(self, row: int) -> list[npt.NDArray[np.int32]]:
        return self.batch[row].arrays

    def start(self, chunks: Sequence[TextChunk], num_steps: int) -> torch.Tensor:
        self._may_break("start")
        requests = [self.batch[chunk.request.row] for chunk in chunks]
        assert [request.request_id for request in requests] == [chunk.request.request_id for chunk in chunks]
        lengths = [chunk.num_draft_tokens for chunk in chunks]
        assert lengths == sorted(lengths, reverse=True)
        self._kv.compute(chunks, [request.tables for request in requests])
        self.passes = [sum(chunk.stop - chunk.start for chunk in chunks)]
        self.num_computed = {chunk.request.request_id: chunk.stop - chunk.start for chunk in chunks}
        self._steps_left = num_steps
        self._live = [(r, list(r.text), r.tables) for r, length in zip(requests, lengths, strict=True) if length]
        for request, chunk in zip(requests, chunks, strict=True):
            text = request.text[: chunk.stop]
            assert self._kv.num_right(request.tables, text) == len(text), f"{request.request_id} is not caught up"
        return self._logits()

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        self._may_break("step")
        assert 0 < len(token_ids) <= len(self._live)
        assert self._steps_left > 0, "more steps than were announced"
        self._steps_left -= 1
        self._live = self._live[: len(token_ids)]
        self.passes.append(len(token_ids))
        for (request, text, tables), token in zip(self._live, token_ids.tolist(), strict=True):
            text.append(token)
            assert len(text) <= min(self.max_len, request.num_slots([BLOCK_SIZE])), "no slot, or beyond the context"
            self._kv.write(tables, text, len(text) - 1)
        return self._logits()

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
        self._may_break("constrain")
        live = [(request.request_id, text[len(request.text) :]) for request, text, _ in self._live]
        requests = [self.batch[row] for row in rows.tolist()]
        contexts = [[token for token in row if token >= 0] for row in drafts.tolist()]
        given = [(request.request_id, context) for request, context in zip(requests, contexts, strict=True)]
        assert given == live
        parts = zip(logits, requests, contexts, strict=True)
        return torch.stack([constrained(raw, request, context) for raw, request, context in parts])

    def _logits(self) -> torch.Tensor:
        """[n, VOCAB_SIZE]: by the last two tokens of each, out of the KV cache."""
        logits = []
        for request, text, tables in self._live:
            [slot] = self._kv.slots_of(tables, len(text) - 1)
            seen = self._kv.slots[slot]
            assert seen == tuple(text), f"{request.request_id}: computed over keys and values of another text"
            logits.append(self.table[seen[-2:]])
        return torch.stack(logits) if logits else torch.empty(0, VOCAB_SIZE)

    def _may_break(self, name: str) -> None:
        if self.broken is not None and self.broken[0] == name:
            self.broken = (name, self.broken[1] - 1)
            if self.broken[1] < 0:
                raise RuntimeError(f"{name} is broken")


def constrained(logits: torch.Tensor, request: Request, drafts: list[int]) -> torch.Tensor:
    """A sampling pipeline that depends on the request and on what was drafted: a bias, a penalty, a temperature."""
    logits = logits.clone()
    logits[request.bias] += 1
    for token in drafts:
        logits[token] -= 0.5
    if request.temperature:
        logits /= request.temperature
    return logits


def oracle(engine: TableEngine, request: Request, samples: bool) -> tuple[list[int], torch.Tensor | None]:
    """The draft of one request, token by token, and its q; None where tokens are certain."""
    text = list(request.text)
    drafts: list[int] = []
    q = []
    view = request.view(0, [BLOCK_SIZE])
    certain = view.point_mass or not samples
    for i in range(request.k):
        probs = constrained(engine.table[text[-2], text[-1]], request, drafts).double().softmax(-1)
        token = int(probs.argmax())
        if not certain:
            token = int(np.searchsorted(probs.cumsum(0).numpy(), view.uniforms[i], side="right"))
        drafts.append(token)
        text.append(token)
        q.append(probs.float())
    return drafts, torch.stack(q) if q and not certain else None


class Scene:
    """Requests with blocks, drafted for by a table.

    Attributes:
        engine: the table.
        samples: whether drafts of sampled requests are sampled.
        proposer: makes them.
    """

    def __init__(self, samples: bool = True, catch_up_tokens: int = 2048) -> None:
        """Nothing is computed."""
        self.engine, self.samples = TableEngine(), samples
        self.proposer = DraftModelProposer(self.engine, samples, catch_up_tokens)
        self._pool = Pool(NUM_BLOCKS, self.engine.coverage)
        # Not in order: a position's slot says nothing about the next one's.
        np.random.default_rng(0).shuffle(self._pool.free)

    def show(self, requests: Sequence[Request]) -> list[RequestView]:
        """Gives requests the blocks that they lack for text and drafts; returns their views."""
        for request in requests:
            request.tables = request.tables or [[]]
            assert self._pool.extend(request, len(request.text) + request.k)
        self.engine.batch, self.engine.passes = requests, []
        return [request.view(row, [BLOCK_SIZE]) for row, request in enumerate(requests)]

    def propose(self, requests: Sequence[Request]) -> list[Draft]:
        """One step."""
        return self.proposer.propose(self.show(requests))

    def watermark(self, request: Request) -> int:
        """Position up to which the draft counts as computed."""
        text = np.array(request.text, np.int32)
        return self.engine.coverage.watermark(request.request_id, text, request.arrays)
