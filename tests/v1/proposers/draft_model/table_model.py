"""A draft model that is a table of token pairs, on a KV cache that knows what it was computed from, and its oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from tests.v1.proposers.draft_model.pool import DraftKV
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage
from vllm_spec_plugin.v1.proposers.draft_model.proposer import DraftModelProposer

VOCAB_SIZE = 12
BLOCK_SIZE = 4
NUM_BLOCKS = 1200


@dataclass
class Request:
    """A served request and its options."""

    request_id: str  # Its name.
    text: list[int]  # Prompt and output so far.
    k: int = 4  # Drafts wanted.
    temperature: float = 1.0  # 0 is greedy.
    uniforms: npt.NDArray[np.float64] | None = None  # [k]; made from its name and the length of its text if None.
    point_mass: bool | None = None  # None follows from the temperature.
    in_prompt: bool = False  # The target is not through with it.
    bias: int = 0  # A token that its sampling pipeline favours.
    blocks: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # Its block table.

    def view(self, row: int) -> RequestView:
        """Builds the view that a proposer gets of it."""
        rng = np.random.default_rng([len(self.text), *self.request_id.encode()])
        uniforms = self.uniforms
        if uniforms is None:
            uniforms = rng.random(self.k)
        return RequestView(
            request_id=self.request_id,
            token_ids=np.array(self.text, np.int32),
            num_draft_tokens=self.k,
            uniforms=uniforms,
            point_mass=not self.temperature if self.point_mass is None else self.point_mass,
            row=row,
            num_slots=len(self.blocks) * BLOCK_SIZE,
            in_prompt=self.in_prompt,
            depth=self.k,
        )


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
        self._live: list[tuple[Request, list[int], npt.NDArray[np.int32]]] = []
        self._steps_left = 0

    def block_tables(self, row: int) -> list[npt.NDArray[np.int32]]:
        return [self.batch[row].blocks]

    def start(self, chunks: Sequence[TextChunk], num_steps: int) -> torch.Tensor:
        self._may_break("start")
        requests = [self.batch[chunk.request.row] for chunk in chunks]
        assert [request.request_id for request in requests] == [chunk.request.request_id for chunk in chunks]
        lengths = [chunk.num_draft_tokens for chunk in chunks]
        assert lengths == sorted(lengths, reverse=True)
        self._kv.compute(chunks, [[request.blocks] for request in requests])
        self.passes = [sum(chunk.stop - chunk.start for chunk in chunks)]
        self.num_computed = {chunk.request.request_id: chunk.stop - chunk.start for chunk in chunks}
        self._steps_left = num_steps
        self._live = [(r, list(r.text), r.blocks) for r, length in zip(requests, lengths, strict=True) if length]
        for request, chunk in zip(requests, chunks, strict=True):
            text = request.text[: chunk.stop]
            assert self._kv.num_right([request.blocks], text) == len(text), f"{request.request_id} is not caught up"
        return self._logits()

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        self._may_break("step")
        assert 0 < len(token_ids) <= len(self._live)
        assert self._steps_left > 0, "more steps than were announced"
        self._steps_left -= 1
        self._live = self._live[: len(token_ids)]
        self.passes.append(len(token_ids))
        for (_, text, blocks), token in zip(self._live, token_ids.tolist(), strict=True):
            text.append(token)
            assert len(text) <= min(self.max_len, len(blocks) * BLOCK_SIZE), "no slot, or beyond the context"
            self._kv.write([blocks], text, len(text) - 1)
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
        for request, text, blocks in self._live:
            [slot] = self._kv.slots_of([blocks], len(text) - 1)
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
    view = request.view(0)
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
        # Not in order: a position's slot says nothing about the next one's.
        self._free = np.random.default_rng(0).permutation(NUM_BLOCKS).astype(np.int32).tolist()

    def propose(self, requests: Sequence[Request]) -> list[Draft]:
        """One step; requests get the blocks that they lack for text and drafts."""
        for request in requests:
            missing = -(-(len(request.text) + request.k) // BLOCK_SIZE) - len(request.blocks)
            if missing > 0:
                added = [self._free.pop() for _ in range(missing)]
                self.engine.coverage.allocated(request.request_id, len(request.blocks), added)
                request.blocks = np.append(request.blocks, np.array(added, np.int32))
        self.engine.batch = requests
        self.engine.passes = []
        return self.proposer.propose([request.view(row) for row, request in enumerate(requests)])

    def watermark(self, request: Request) -> int:
        """Position up to which the draft counts as computed."""
        text = np.array(request.text, np.int32)
        return self.engine.coverage.watermark(request.request_id, text, [request.blocks])
