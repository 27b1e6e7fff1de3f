"""A draft model that is a table of token pairs, on a KV cache that knows what it was computed from, and its oracle."""

import itertools
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
NUM_BLOCKS = 1200


@dataclass
class Request:
    """What is served, and how."""

    request_id: str  # Its name.
    text: list[int]  # Prompt and output so far.
    k: int = 4  # Drafts wanted.
    temperature: float = 1.0  # 0 is greedy.
    uniforms: npt.NDArray[np.float64] | None = None  # [k]; made from its name and the length of its text if None.
    point_mass: bool | None = None  # None follows from the temperature.
    in_prompt: bool = False  # The target is not through with it.
    bias: int = 0  # A token that its sampling pipeline favours.
    blocks: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # Its block table.
    depth: int | None = None  # Most drafts one after the other; k if None.
    chain_only: bool = False  # No branches.
    forks: list[list[int]] = field(default_factory=list)  # Blocks of each branch beside the trunk.

    def num_branches(self, depth: int) -> int:
        """Branches, the trunk among them, that all but the last of `depth` drafts find slots for."""
        needed = {position // BLOCK_SIZE for position in range(len(self.text), len(self.text) + depth - 1)}
        return 1 + sum(len(fork) >= len(needed) for fork in self.forks)

    def view(self, row: int) -> RequestView:
        """What a proposer gets to see of it."""
        rng = np.random.default_rng([len(self.text), *self.request_id.encode()])
        uniforms = self.uniforms
        if uniforms is None:
            uniforms = rng.random(self.k)
        depth = self.k if self.depth is None else self.depth
        siblings = rng.random((depth, 4))
        siblings[: len(uniforms), 0] = uniforms[:depth]
        return RequestView(
            request_id=self.request_id,
            token_ids=np.array(self.text, np.int32),
            num_draft_tokens=self.k,
            uniforms=uniforms,
            point_mass=not self.temperature if self.point_mass is None else self.point_mass,
            row=row,
            num_slots=len(self.blocks) * BLOCK_SIZE,
            in_prompt=self.in_prompt,
            depth=depth,
            chain_only=self.chain_only,
            sibling_uniforms=siblings,
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
        self._branched = False

    def block_tables(self, row: int) -> list[npt.NDArray[np.int32]]:
        return [self.batch[row].blocks]

    def start(self, chunks: Sequence[Chunk], num_steps: int) -> torch.Tensor:
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
        self._branched = False
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

    def num_branches(self, row: int, depth: int) -> int:
        return self.batch[row].num_branches(depth)

    def branch(self, counts: Sequence[int]) -> None:
        self._may_break("branch")
        assert len(self.passes) == 1, "not right after the start"
        live = []
        for (request, text, blocks), count in zip(self._live, counts, strict=True):
            assert 0 <= count <= 1 + len(request.forks)
            if count:
                live.append((request, text, blocks))
            first = len(text) // BLOCK_SIZE
            for fork in request.forks[: max(count - 1, 0)]:
                for block in fork:
                    self._kv.slots[block * BLOCK_SIZE : (block + 1) * BLOCK_SIZE] = [None] * BLOCK_SIZE
                for position in range(first * BLOCK_SIZE, len(text)):
                    [slot] = self._kv.slots_of([blocks], position)
                    self._kv.slots[fork[0] * BLOCK_SIZE + position % BLOCK_SIZE] = self._kv.slots[slot]
                live.append((request, list(text), np.array([*blocks[:first], *fork], np.int32)))
        self._live, self._branched = live, True

    def keep(self, chosen: torch.Tensor) -> None:
        self._may_break("keep")
        indices = chosen.tolist()
        assert indices == sorted(set(indices))
        self._live = [self._live[i] for i in indices]

    def constrain(
        self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor, temperature: float | None
    ) -> torch.Tensor:
        self._may_break("constrain")
        live = [(request.request_id, text[len(request.text) :]) for request, text, _ in self._live]
        requests = [self.batch[row] for row in rows.tolist()]
        contexts = [[token for token in row if token >= 0] for row in drafts.tolist()]
        given = [(request.request_id, context) for request, context in zip(requests, contexts, strict=True)]
        if self._branched:
            # Of branches that have not parted, one is asked about.
            assert all(entry in live for entry in given)
            assert {request_id for request_id, _ in given} == {request_id for request_id, _ in live}
            assert len(given) == len(set(map(str, given))), "asked twice"
            for raw, request, context in zip(logits, requests, contexts, strict=True):
                assert torch.equal(raw, self.table[tuple((request.text + context)[-2:])])
        else:
            assert given == live
        parts = zip(logits, requests, contexts, strict=True)
        return torch.stack([constrained(raw, request, context, temperature) for raw, request, context in parts])

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


Node = tuple[tuple[int, ...], int, torch.Tensor]


def tree_oracle(engine: TableEngine, request: Request, settings: DraftSettings) -> list[Node]:
    """The draft tree of one request, node by node, depth first: ranks on the way to it, its token, and its q."""
    view = request.view(0)
    uniforms = view.sibling_uniforms
    assert uniforms is not None
    certain = view.point_mass or settings.draft_sampling == "greedy"
    kept = expected_nodes(request, settings, min(view.depth, engine.max_len - len(request.text) + 1))
    nodes: list[Node] = []

    def grow(path: tuple[int, ...], drafts: list[int]) -> None:
        text = [*request.text, *drafts]
        logits = constrained(engine.table[text[-2], text[-1]], request, drafts, settings.draft_temperature).double()
        left = logits.softmax(-1)
        place = len(path)
        for rank in range(settings.branches[place]):
            q = left / left.sum()
            token = int(left.argmax())
            if not certain:
                token = int(np.searchsorted(q.cumsum(0).numpy(), float(uniforms[place, rank]), side="right"))
            left[token] = 0
            child = (*path, rank)
            if child in kept:
                nodes.append((child, token, q.float()))
                if any(path[:-1] == child for path in kept):
                    grow(child, [*drafts, token])

    if kept:
        grow((), [])
    return nodes


def expected_nodes(request: Request, settings: DraftSettings, depth: int) -> set[tuple[int, ...]]:
    """Paths of the first K nodes by probability, without what is too deep or lacks blocks."""
    most = len(settings.branches)
    if request.chain_only:
        return {(0,) * d for d in range(1, min(depth, request.k, most) + 1)}

    def probability(path: tuple[int, ...]) -> float:
        return float(np.prod([0.75 if not rank else 0.1 * 0.5 ** (rank - 1) for rank in path]).round(9))

    wide = [range(count) for count in settings.branches]
    every = [path for d in range(1, most + 1) for path in itertools.product(*wide[:d])]
    every.sort(key=lambda path: (-probability(path), len(path), path))
    nodes = [path for path in every[: request.k] if len(path) <= depth]
    deepest = max(map(len, nodes), default=0)
    kept: set[tuple[int, ...]] = set()
    for path in nodes:
        added = kept | {path}
        leaves = sum(all(other[:-1] != node for other in added) for node in added)
        if (len(path) == 1 or path[:-1] in kept) and leaves <= request.num_branches(deepest):
            kept = added
    return kept


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

    def fork(self, request: Request, count: int, size: int = 2) -> Request:
        """Gives a request blocks for `count` branches beside the trunk."""
        request.forks = [[self._free.pop() for _ in range(size)] for _ in range(count)]
        return request

    def watermark(self, request: Request) -> int:
        """How far the draft is believed to be with its text."""
        text = np.array(request.text, np.int32)
        return self.engine.coverage.watermark(request.request_id, text, [request.blocks])
