"""A draft model that is a table of token pairs, on a KV cache that knows what it was computed from, and its oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from tests.unit.proposers.draft_model.pool import DraftKV
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk
from vllm_spec_plugin.proposers.draft_model.coverage import DraftCoverage
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
from vllm_spec_plugin.proposers.draft_model.proposer import DraftModelProposer

VOCAB_SIZE = 12
BLOCK_SIZE = 4
NUM_BLOCKS = 400


@dataclass
class Request:
    """What is served, and how.

    Attributes:
        request_id: its name.
        text: prompt and output so far.
        k: drafts wanted.
        temperature: 0 is greedy.
        uniforms: [k]; made from its name and the length of its text if None.
        point_mass: None follows from the temperature.
        in_prompt: the target is not through with it.
        bias: a token that its sampling pipeline favours.
        blocks: its block table.
    """

    request_id: str
    text: list[int]
    k: int = 4
    temperature: float = 1.0
    uniforms: npt.NDArray[np.float64] | None = None
    point_mass: bool | None = None
    in_prompt: bool = False
    bias: int = 0
    blocks: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def view(self, row: int) -> RequestView:
        """What a proposer gets to see of it."""
        uniforms = self.uniforms
        if uniforms is None:
            uniforms = np.random.default_rng([len(self.text), *self.request_id.encode()]).random(self.k)
        return RequestView(
            request_id=self.request_id,
            token_ids=np.array(self.text, np.int32),
            num_draft_tokens=self.k,
            uniforms=uniforms,
            point_mass=not self.temperature if self.point_mass is None else self.point_mass,
            row=row,
            num_slots=len(self.blocks) * BLOCK_SIZE,
            in_prompt=self.in_prompt,
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
        self.coverage = DraftCoverage(NUM_BLOCKS, BLOCK_SIZE)
        self.max_len = max_len
        generator = torch.Generator().manual_seed(seed)
        shape = (VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE)
        self.table = torch.randn(shape, generator=generator) * spread
        self.batch: Sequence[Request] = []
        self.passes: list[int] = []
        self.num_computed: dict[str, int] = {}
        self.broken: tuple[str, int] | None = None
        self._kv = DraftKV(NUM_BLOCKS, BLOCK_SIZE)
        self._live: list[tuple[Request, list[int]]] = []
        self._steps_left = 0

    def block_table(self, row: int) -> npt.NDArray[np.int32]:
        return self.batch[row].blocks

    def start(self, chunks: Sequence[Chunk], num_steps: int) -> torch.Tensor:
        self._may_break("start")
        requests = [self.batch[chunk.request.row] for chunk in chunks]
        assert [request.request_id for request in requests] == [chunk.request.request_id for chunk in chunks]
        lengths = [chunk.num_draft_tokens for chunk in chunks]
        assert lengths == sorted(lengths, reverse=True)
        self._kv.compute(chunks, [request.blocks for request in requests])
        self.passes = [sum(chunk.stop - chunk.start for chunk in chunks)]
        self.num_computed = {chunk.request.request_id: chunk.stop - chunk.start for chunk in chunks}
        self._steps_left = num_steps
        self._live = [(r, list(r.text)) for r, length in zip(requests, lengths, strict=True) if length]
        for request, chunk in zip(requests, chunks, strict=True):
            text = request.text[: chunk.stop]
            assert self._kv.num_right(request.blocks, text) == len(text), f"{request.request_id} is not caught up"
        return self._logits()

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        self._may_break("step")
        assert 0 < len(token_ids) <= len(self._live)
        assert self._steps_left > 0, "more steps than were announced"
        self._steps_left -= 1
        self._live = self._live[: len(token_ids)]
        self.passes.append(len(token_ids))
        for (request, text), token in zip(self._live, token_ids.tolist(), strict=True):
            text.append(token)
            assert len(text) <= min(self.max_len, len(request.blocks) * BLOCK_SIZE), "no slot, or beyond the context"
            self._kv.write(request.blocks, text, len(text) - 1)
        return self._logits()

    def keep(self, chosen: torch.Tensor) -> None:
        self._may_break("keep")
        indices = chosen.tolist()
        assert indices == sorted(set(indices))
        self._live = [self._live[i] for i in indices]

    def constrain(
        self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor, temperature: float | None
    ) -> torch.Tensor:
        self._may_break("constrain")
        contexts = [text[len(request.text) :] for request, text in self._live]
        assert [self.batch[row] for row in rows.tolist()] == [request for request, _ in self._live]
        assert [[token for token in row if token >= 0] for row in drafts.tolist()] == contexts
        parts = zip(logits, self._live, contexts, strict=True)
        return torch.stack([constrained(raw, request, context, temperature) for raw, (request, _), context in parts])

    def _logits(self) -> torch.Tensor:
        """[n, VOCAB_SIZE]: by the last two tokens of each, out of the KV cache."""
        logits = []
        for request, text in self._live:
            seen = self._kv.slots[self._kv.slot(request.blocks, len(text) - 1)]
            assert seen == tuple(text), f"{request.request_id}: computed over keys and values of another text"
            logits.append(self.table[seen[-2:]])
        return torch.stack(logits) if logits else torch.empty(0, VOCAB_SIZE)

    def _may_break(self, name: str) -> None:
        if self.broken is not None and self.broken[0] == name:
            self.broken = (name, self.broken[1] - 1)
            if self.broken[1] < 0:
                raise RuntimeError(f"{name} is broken")


def constrained(logits: torch.Tensor, request: Request, drafts: list[int], temperature: float | None) -> torch.Tensor:
    """A sampling pipeline that depends on the request and on what was drafted: a bias, a penalty, a temperature."""
    logits = logits.clone()
    logits[request.bias] += 1
    for token in drafts:
        logits[token] -= 0.5
    if request.temperature:
        logits /= request.temperature if temperature is None else temperature
    return logits


def oracle(
    engine: TableEngine, request: Request, settings: DraftSettings, k: int | None = None
) -> tuple[list[int], torch.Tensor | None]:
    """The draft of one request, token by token, and its q; None where tokens are certain."""
    text = list(request.text)
    drafts: list[int] = []
    q = []
    view = request.view(0)
    certain = view.point_mass or settings.draft_sampling == "greedy"
    for i in range(request.k if k is None else k):
        raw = engine.table[text[-2], text[-1]]
        probs = constrained(raw, request, drafts, settings.draft_temperature).double().softmax(-1)
        token = int(probs.argmax())
        if not certain:
            token = int(np.searchsorted(probs.cumsum(0).numpy(), view.uniforms[i], side="right"))
        unsure = bool(probs[token] < settings.min_confidence)
        if not (unsure and certain):
            drafts.append(token)
            text.append(token)
            q.append(probs.float())
        if unsure:
            break
    return drafts, torch.stack(q) if q and not certain else None


class Scene:
    """Requests with blocks, drafted for by a table.

    Attributes:
        engine: the table.
        settings: how drafts are made.
        proposer: makes them.
    """

    def __init__(self, settings: DraftSettings | None = None, engine: TableEngine | None = None) -> None:
        """Nothing is computed."""
        self.engine = engine or TableEngine()
        self.settings = settings or DraftSettings()
        self.proposer = DraftModelProposer(self.engine, self.settings)
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
        """How far the draft is believed to be with its text."""
        text = np.array(request.text, np.int32)
        return self.engine.coverage.watermark(request.request_id, text, request.blocks)
