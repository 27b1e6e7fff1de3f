"""A pool of KV blocks with a prefix cache, as a scheduler keeps it, and what the draft really wrote into it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage

# Block tables of a request, one per KV group.
Tables = Sequence[Sequence[int] | npt.NDArray[np.int32]]


@dataclass
class Request:
    """A request and its options."""

    request_id: str  # Its name.
    text: list[int]  # Prompt and output so far.
    k: int = 4  # Drafts wanted.
    temperature: float = 1.0  # 0 is greedy.
    point_mass: bool | None = None  # None follows from the temperature.
    bias: int = 0  # A token that its sampling pipeline favours.
    num_computed: int | None = None  # Tokens that the target has computed; None is all but the newest.
    # Its block tables, one per KV group; empty while it is not running.
    tables: list[list[int]] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)  # What waits to be verified.

    @property
    def in_prompt(self) -> bool:
        """Whether the target is not through with the text; it is when only its newest token is left."""
        return self.num_computed is not None and self.num_computed < len(self.text) - 1

    @property
    def arrays(self) -> list[npt.NDArray[np.int32]]:
        """Its block tables, as a worker has them."""
        return [np.array(blocks, np.int32) for blocks in self.tables]

    def num_slots(self, block_sizes: Sequence[int]) -> int:
        """Tokens that every KV group has slots for."""
        return min((len(blocks) * size for blocks, size in zip(self.tables, block_sizes, strict=True)), default=0)

    def view(self, row: int, block_sizes: Sequence[int]) -> RequestView:
        """Builds the view that a proposer gets; uniforms follow from the name and the length of the text."""
        return RequestView(
            request_id=self.request_id,
            token_ids=np.array(self.text, np.int32),
            num_draft_tokens=self.k,
            uniforms=np.random.default_rng([len(self.text), *self.request_id.encode()]).random(self.k),
            point_mass=not self.temperature if self.point_mass is None else self.point_mass,
            row=row,
            num_slots=self.num_slots(block_sizes),
            in_prompt=self.in_prompt,
            depth=self.k,
        )


class Pool:
    """Blocks, who has them, and which the prefix cache finds; tells a `DraftCoverage` as the worker does.

    Attributes:
        coverage: is told.
        block_sizes: tokens per block of each KV group.
        free: blocks nobody has, those to be given next first.
    """

    def __init__(self, num_blocks: int, coverage: DraftCoverage) -> None:
        """All blocks are free and nothing is cached."""
        self.coverage = coverage
        self.block_sizes = coverage.block_sizes
        self.free = list(range(num_blocks))
        self._owners = [0] * num_blocks
        # By group and text.
        self._cached: dict[tuple[int, tuple[int, ...]], int] = {}

    def admit(self, request: Request, num_tokens: int) -> bool:
        """Gives a new or resumed request blocks for its first `num_tokens` tokens or more; False if few are free."""
        found, num_found = self._find(request.text)
        flat = [block for blocks in found for block in blocks]
        missing = self._missing(found, max(num_tokens, num_found + 1))
        if sum(missing) > sum(block not in flat for block in self.free):
            return False
        for block in flat:
            self._take(block)
        request.tables, request.drafts = found, []
        request.num_computed = num_found
        self.coverage.forget(request.request_id)
        return self.extend(request, max(num_tokens, num_found + 1))

    def extend(self, request: Request, num_tokens: int) -> bool:
        """Adds the blocks that are missing for `num_tokens` tokens; False if too few are free."""
        missing = self._missing(request.tables, num_tokens)
        if sum(missing) > len(self.free):
            return False
        for group, count in enumerate(missing):
            added = [self._take(self.free[0]) for _ in range(count)]
            self._cached = {key: block for key, block in self._cached.items() if block not in added}
            if added:
                self.coverage.allocated(request.request_id, len(request.tables[group]), added, group)
                request.tables[group] += added
        return True

    def cut(self, request: Request, num_tokens: int, at: int = 0) -> None:
        """Takes back the blocks that begin beyond `num_tokens` tokens; `at` is their place among the free ones."""
        for blocks, size in zip(request.tables, self.block_sizes, strict=True):
            length = -(-num_tokens // size)
            for block in blocks[length:]:
                self._release(block, at)
            del blocks[length:]

    def computed(self, request: Request, num_tokens: int) -> None:
        """The target has computed so many tokens of the text: full blocks can be found from now on."""
        request.num_computed = num_tokens
        for group, (blocks, size) in enumerate(zip(request.tables, self.block_sizes, strict=True)):
            for count in range(1, num_tokens // size + 1):
                self._cached.setdefault((group, tuple(request.text[: count * size])), blocks[count - 1])

    def leave(self, request: Request) -> None:
        """Takes a finished or preempted request's blocks; the prefix cache still finds them."""
        for blocks in request.tables:
            for block in reversed(blocks):
                self._release(block, len(self.free))
        request.tables = []
        self.coverage.forget(request.request_id)

    def _find(self, text: Sequence[int]) -> tuple[list[list[int]], int]:
        """Blocks of every group that hold the text's beginning, and its length: whole blocks of all groups."""
        found: list[list[int]] = []
        for group, size in enumerate(self.block_sizes):
            found.append([])
            # The target has to compute the last token itself.
            for stop in range(size, len(text), size):
                block = self._cached.get((group, tuple(text[:stop])))
                if block is None:
                    break
                found[-1].append(block)
        aligned = math.lcm(*self.block_sizes)
        length = min(len(blocks) * size for blocks, size in zip(found, self.block_sizes, strict=True))
        length = length // aligned * aligned
        return [blocks[: length // size] for blocks, size in zip(found, self.block_sizes, strict=True)], length

    def _missing(self, tables: Sequence[Sequence[int]], num_tokens: int) -> list[int]:
        return [
            max(-(-num_tokens // size) - len(blocks), 0) for blocks, size in zip(tables, self.block_sizes, strict=True)
        ]

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
    """The text from which the draft's keys and values in each slot were computed.

    Attributes:
        slots: per slot the text up to and with its token; None is nothing, or anything that was
            computed over keys and values of another text.
    """

    def __init__(self, num_blocks: int, block_sizes: Sequence[int]) -> None:
        """All slots are empty."""
        self._sizes = block_sizes
        self._stride = max(block_sizes)
        self.slots: list[tuple[int, ...] | None] = [None] * (num_blocks * self._stride)

    def slots_of(self, tables: Tables, position: int) -> list[int]:
        """Finds the slots of a position's keys and values, per KV group."""
        return [
            int(blocks[position // size]) * self._stride + position % size
            for blocks, size in zip(tables, self._sizes, strict=True)
        ]

    def num_right(self, tables: Tables, text: Sequence[int]) -> int:
        """Counts the positions of the text, from its beginning, whose draft state is right in every group."""
        for position in range(len(text)):
            here = tuple(text[: position + 1])
            if any(self.slots[slot] != here for slot in self.slots_of(tables, position)):
                return position
        return len(text)

    def write(self, tables: Tables, text: Sequence[int], position: int) -> None:
        """Computes one token of the text; in vain where one before it is missing or wrong."""
        right = self.num_right(tables, text[:position]) == position
        for slot in self.slots_of(tables, position):
            self.slots[slot] = tuple(text[: position + 1]) if right else None

    def compute(self, chunks: Sequence[TextChunk], tables: Sequence[Tables]) -> None:
        """One forward pass: a token sees those of the same pass that lie in its own tables, at lower positions."""
        texts = [chunk.request.token_ids.tolist() for chunk in chunks]
        for position in range(max((chunk.stop for chunk in chunks), default=0)):
            for chunk, blocks, text in zip(chunks, tables, texts, strict=True):
                if chunk.start <= position < chunk.stop:
                    self.write(blocks, text, position)
