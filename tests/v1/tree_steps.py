"""Random steps that verify trees, and a paged KV cache that knows of every slot what was computed into it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tests.unit.verification.topologies import random_topology
from vllm_spec_plugin.v1.tree_step import BlockCopy, StepRequest
from vllm_spec_plugin.verification.topology import Topology, chain, topology

NUM_BLOCKS = 400
Words = tuple[object, ...]
"""Everything that a token's keys and values depend on: the tokens up to and with it."""


@dataclass(frozen=True)
class Verifying:
    """A request that verifies drafts."""

    row: int  # Its place in the batch.
    length: int  # Tokens of its text.
    num_computed: int  # How many of them are in the cache.
    tree: Topology  # Of its drafts.
    blocks: tuple[int, ...]  # Its block table, which reaches to the end of the step.
    forks: tuple[int, ...] = ()  # Blocks of its branches.
    fork_size: int = 1  # How many make one.

    @property
    def step_request(self) -> StepRequest:
        num_tokens = self.length - self.num_computed + self.tree.num_nodes
        return StepRequest(self.row, self.num_computed, num_tokens, self.tree, self.forks, self.fork_size)

    @property
    def text(self) -> Words:
        return tuple((self.row, position) for position in range(self.length))

    def words(self, node: int) -> Words:
        """The text, and the way to `node`; -1 is the text alone."""
        way: list[object] = []
        while node >= 0:
            way.append((self.row, "node", node))
            node = self.tree.parents[node]
        return self.text + tuple(reversed(way))

    @property
    def tokens(self) -> list[Words]:
        """The step's: what is left of the text, then the nodes."""
        text = [self.text[: position + 1] for position in range(self.num_computed, self.length)]
        return text + [self.words(node) for node in range(self.tree.num_nodes)]

    def first_left_out(self, block_size: int) -> int:
        """The first node that blocks are lacking for; branches get theirs in turn, whole or not at all."""
        if not self.tree.chains:
            return 0
        needed = blocks_of(self.length, self.length + self.tree.depth - 1, block_size)
        num_forks = len(self.forks) // self.fork_size if self.fork_size >= needed else 0
        return self.tree.chains[min(num_forks, len(self.tree.chains) - 1)][-1] + 1


def blocks_of(first: int, last: int, block_size: int) -> int:
    """Counts the blocks that hold positions `first` to `last`."""
    return len({position // block_size for position in range(first, last + 1)})


@dataclass
class PagedCache:
    """One layer's keys and values."""

    block_size: int  # Tokens per block.
    slots: dict[int, Words] = field(default_factory=dict)  # What is in each.

    def slot(self, blocks: Sequence[int], position: int) -> int:
        return int(blocks[position // self.block_size]) * self.block_size + position % self.block_size

    def read(self, blocks: Sequence[int], length: int) -> list[Words | None]:
        """Reads the entry of each position of a sequence of that length."""
        return [self.slots.get(self.slot(blocks, position)) for position in range(length)]

    def copy(self, copies: Iterable[BlockCopy]) -> None:
        for source, target in copies:
            for offset in range(self.block_size):
                found = self.slots.get(source * self.block_size + offset)
                self.slots.pop(target * self.block_size + offset, None)
                if found is not None:
                    self.slots[target * self.block_size + offset] = found


def prefixes(words: Words) -> list[Words]:
    return [words[: end + 1] for end in range(len(words))]


def filled(requests: Sequence[Verifying], block_size: int) -> PagedCache:
    """The cache before the step: the computed part of the texts; nothing anybody may use elsewhere."""
    cache = PagedCache(block_size)
    for request in requests:
        for position in range(request.num_computed):
            cache.slots[cache.slot(request.blocks, position)] = request.text[: position + 1]
    return cache


def block_tables(requests: Sequence[Verifying]) -> np.ndarray:
    """The batch's block tables; of rows that are not in the step too, and with what is left over behind their ends."""
    tables = np.full((len(requests) + 2, 60), NUM_BLOCKS - 1, dtype=np.int32)
    for request in requests:
        tables[request.row, : len(request.blocks)] = request.blocks
    return tables


SHAPES: list[Topology] = [
    chain(0),
    chain(1),
    chain(3),
    chain(7),
    topology([[0], [1]]),
    topology([[rank] for rank in range(9)]),
    topology([[0], [1], [0, 0], [1, 0]]),
    topology([[0], [1], [1, 0], [1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0, 0]]),
    topology([[0], [0, 0], [0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1], [0, 2], [3]]),
    topology([[i] for i in range(3)] + [[i, j] for i in range(3) for j in range(2)] + [[1, 1, k] for k in range(3)]),
]


SHAPES += [random_topology(np.random.default_rng(seed), 14) for seed in range(30)]


def random_step(chance: Random, block_size: int) -> list[Verifying]:
    """Requests of a step in the order of the batch."""
    free = list(range(1, NUM_BLOCKS - 1))
    chance.shuffle(free)
    requests = []
    for row in range(chance.randint(1, 4)):
        tree = chance.choice(SHAPES)
        # At, before and after the end of a block.
        length = max(1, chance.randint(0, 4) * block_size + chance.choice([-1, 0, 1, chance.randint(0, block_size)]))
        num_computed = chance.choice([length - 1, length - 1, 0, chance.randint(0, length - 1)])
        num_blocks = -(-(length + tree.num_nodes) // block_size) + chance.choice([0, 0, 2])
        blocks = tuple(free.pop() for _ in range(num_blocks))
        size = blocks_of(length, length + max(tree.depth, 1) - 1, block_size)
        size = max(1, size + chance.choice([0, 0, 0, 1, -1]))
        num_branches = max(len(tree.chains) - 1, 0)
        num_forks = chance.choice([num_branches, num_branches, chance.randint(0, num_branches), 0, num_branches + 1])
        forks = tuple(free.pop() for _ in range(num_forks * size))
        requests.append(Verifying(row, length, num_computed, tree, blocks, forks, size))
    return requests
