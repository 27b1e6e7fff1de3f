"""A pool of KV blocks with a prefix cache, as a scheduler keeps it, and what the draft really wrote into it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk
from vllm_spec_plugin.proposers.draft_model.coverage import DraftCoverage


@dataclass
class Served:
    """A request.

    Attributes:
        request_id: its name.
        text: prompt and output so far.
        blocks: its block table; empty while it is not running.
        num_computed: tokens that the target has computed.
        drafts: what waits to be verified.
    """

    request_id: str
    text: list[int]
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def in_prompt(self) -> bool:
        """Whether the target is not through with the text; it is when only its newest token is left."""
        return self.num_computed < len(self.text) - 1

    def view(self, row: int, num_draft_tokens: int, block_size: int) -> RequestView:
        """What a proposer gets to see."""
        return RequestView(
            request_id=self.request_id,
            token_ids=np.array(self.text, np.int32),
            num_draft_tokens=num_draft_tokens,
            uniforms=np.zeros(num_draft_tokens),
            row=row,
            num_slots=len(self.blocks) * block_size,
            in_prompt=self.in_prompt,
        )


class Pool:
    """Blocks, who has them, and which the prefix cache finds; tells a `DraftCoverage` as the worker does.

    Attributes:
        coverage: is told.
        block_size: tokens per block.
        free: blocks nobody has, those to be given next first.
    """

    def __init__(self, num_blocks: int, coverage: DraftCoverage) -> None:
        """All blocks are free and nothing is cached."""
        self.coverage = coverage
        self.block_size = coverage.block_size
        self.free = list(range(num_blocks))
        self._owners = [0] * num_blocks
        self._cached: dict[tuple[int, ...], int] = {}

    def admit(self, request: Served, num_tokens: int) -> bool:
        """Gives a new or resumed request blocks for its first `num_tokens` tokens or more; False if few are free."""
        found = self._find(request.text)
        missing = self._missing(found, max(num_tokens, len(found) * self.block_size + 1))
        if missing > sum(block not in found for block in self.free):
            return False
        for block in found:
            self._take(block)
        request.blocks, request.drafts = found, []
        request.num_computed = len(found) * self.block_size
        self.coverage.forget(request.request_id)
        return self.extend(request, max(num_tokens, request.num_computed + 1))

    def extend(self, request: Served, num_tokens: int) -> bool:
        """Adds the blocks that are missing for `num_tokens` tokens; False if too few are free."""
        missing = self._missing(request.blocks, num_tokens)
        if missing > len(self.free):
            return False
        added = [self._take(self.free[0]) for _ in range(missing)]
        self._cached = {text: block for text, block in self._cached.items() if block not in added}
        if added:
            self.coverage.allocated(request.request_id, len(request.blocks), added)
            request.blocks += added
        return True

    def cut(self, request: Served, num_tokens: int, at: int = 0) -> None:
        """Takes back the blocks that begin beyond `num_tokens` tokens; `at` is their place among the free ones."""
        length = -(-num_tokens // self.block_size)
        for block in request.blocks[length:]:
            self._release(block, at)
        del request.blocks[length:]

    def computed(self, request: Served, num_tokens: int) -> None:
        """The target has computed so many tokens of the text: full blocks can be found from now on."""
        request.num_computed = num_tokens
        for count in range(1, num_tokens // self.block_size + 1):
            key = tuple(request.text[: count * self.block_size])
            self._cached.setdefault(key, request.blocks[count - 1])

    def leave(self, request: Served) -> None:
        """Takes a finished or preempted request's blocks; the prefix cache still finds them."""
        for block in reversed(request.blocks):
            self._release(block, len(self.free))
        request.blocks = []
        self.coverage.forget(request.request_id)

    def _find(self, text: Sequence[int]) -> list[int]:
        found: list[int] = []
        # The target has to compute the last token itself.
        for stop in range(self.block_size, len(text), self.block_size):
            block = self._cached.get(tuple(text[:stop]))
            if block is None:
                break
            found.append(block)
        return found

    def _missing(self, blocks: Sequence[int], num_tokens: int) -> int:
        return max(-(-num_tokens // self.block_size) - len(blocks), 0)

    def _take(self, block: int) -> int:
        if not self._owners[block]:
            self.free.remove(block)
        self._owners[block] += 1
        return block

    def _release(self, block: int, place: int) -> None:
        self._owners[block] -= 1
        if not self._owners[block]:
            self.free.insert(place, block)


class DraftKV:
    """What the draft's keys and values in each slot were computed from.

    Attributes:
        slots: per slot the text up to and with its token; None is nothing, or anything that was
            computed over keys and values of another text.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """All slots are empty."""
        self.slots: list[tuple[int, ...] | None] = [None] * (num_blocks * block_size)
        self._block_size = block_size

    def slot(self, blocks: Sequence[int] | npt.NDArray[np.int32], position: int) -> int:
        """Where a position's keys and values lie."""
        return int(blocks[position // self._block_size]) * self._block_size + position % self._block_size

    def num_right(self, blocks: Sequence[int] | npt.NDArray[np.int32], text: Sequence[int]) -> int:
        """How many positions of the text, from its beginning, have the draft's state of it."""
        for position in range(len(text)):
            if self.slots[self.slot(blocks, position)] != tuple(text[: position + 1]):
                return position
        return len(text)

    def write(self, blocks: Sequence[int] | npt.NDArray[np.int32], text: Sequence[int], position: int) -> None:
        """Computes one token of the text; in vain where one before it is missing or wrong."""
        before = text[:position]
        right = self.num_right(blocks, before) == position
        self.slots[self.slot(blocks, position)] = tuple(text[: position + 1]) if right else None

    def compute(self, chunks: Sequence[Chunk], tables: Sequence[Sequence[int] | npt.NDArray[np.int32]]) -> None:
        """One forward pass: a token sees those of the same pass that lie in its own block table, at lower positions."""
        texts = [chunk.request.token_ids.tolist() for chunk in chunks]
        for position in range(max((chunk.stop for chunk in chunks), default=0)):
            for chunk, blocks, text in zip(chunks, tables, texts, strict=True):
                if chunk.start <= position < chunk.stop:
                    self.write(blocks, text, position)
