"""The shapes of draft trees: which node follows which."""

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Path = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Topology:
    """A tree of draft tokens; its root, the end of the text, is no node.

    Equal trees are one object (`topology`), so that what is derived from them is found by identity.

    Attributes:
        choices: per node the ranks among siblings on the way to it, Medusa's "choices". Depth first:
            a parent right before its first child, siblings by rank. So are all indices of nodes.
        parents: per node its parent, -1 where that is the end of the text.
        depths: per node how many tokens follow the text up to and with it: 1 for the first ones.
        chains: the nodes on the way to each leaf, in the order of the leaves.
    """

    choices: tuple[Path, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]

    @property
    def num_nodes(self) -> int:
        """How many draft tokens there are."""
        return len(self.choices)

    @property
    def depth(self) -> int:
        """Nodes on the longest way; 0 without nodes."""
        return max(self.depths, default=0)

    def first(self, num_nodes: int) -> "Topology":
        """The first `num_nodes` of the nodes: depth first, any of the first ones are a tree."""
        return _build(self.choices[: max(num_nodes, 0)])

    def within(self, depth: int) -> "Topology":
        """The tree without the nodes deeper than `depth`."""
        return self if depth >= self.depth else _build(tuple(path for path in self.choices if len(path) <= depth))


def topology(choices: Iterable[Sequence[int]]) -> Topology:
    """The tree of these nodes; the same object each time.

    Args:
        choices: per node the ranks among siblings on the way to it, in any order. Ranks may be left out.

    Raises:
        ValueError: a path is empty, occurs twice, has no parent, or a rank is no integer from 0 on.
    """
    paths = [_path(path) for path in choices]
    known = set(paths)
    for path in paths:
        if len(path) > 1 and path[:-1] not in known:
            raise ValueError(
                f"tree node {list(path)} has no parent: {list(path[:-1])} is not in the tree; "
                "list every node on the way to a node"
            )
    if len(known) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"tree node {list(twice)} is listed twice; list each node once")
    return _build(tuple(sorted(paths)))


def chain(length: int) -> Topology:
    """`length` tokens one after the other; 0 is the empty tree."""
    return _build(tuple((0,) * depth for depth in range(1, length + 1)))


def _path(path: object) -> Path:
    if isinstance(path, str) or not isinstance(path, Sequence) or not path:
        raise ValueError(f"tree node {path!r} is not a path: a node is a list of ranks, [0] or [0, 2]")
    for rank in path:
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            raise ValueError(f"tree node {list(path)}: rank {rank!r} must be an integer from 0 on (0 is the likeliest)")
    return tuple(path)


# Trees cut to the room that requests have left are kept too.
@functools.lru_cache(maxsize=4096)
def _build(choices: tuple[Path, ...]) -> Topology:
    """The tree of valid `choices` in depth-first order: the lexicographic one, a path sorts before its extensions."""
    count = len(choices)
    if not count or len(choices[-1]) == count:
        whole = (tuple(range(count)),) if count else ()
        return Topology(choices, tuple(range(-1, count - 1)), tuple(range(1, count + 1)), whole)
    metadata = _tree_attention_metadata().from_tree_choices(list(choices), device="cpu")
    # xformers sorts by length first, counts the root as node 0, and leaves the paths unsorted.
    place = {path: i for i, path in enumerate(choices)}
    ours = [-1, *(place[path] for path in metadata.tree_choices)]
    parents, depths = [0] * count, [0] * count
    per_node = zip(metadata.parent_node_indices.tolist(), metadata.tree_seq_position_ids.tolist()[1:], strict=True)
    for node, (parent, depth) in zip(ours[1:], per_node, strict=True):
        parents[node], depths[node] = ours[parent], depth
    ways = (tuple(ours[node] for node in way if node > 0) for way in metadata.retrieval_indices.tolist())
    return Topology(choices, tuple(parents), tuple(depths), tuple(sorted(ways, key=lambda way: way[-1])))


def _tree_attention_metadata() -> Any:
    # Here, because it takes seconds, which chains need not wait for.
    with _without_warnings("xformers"):
        from xformers.ops.tree_attention import TreeAttnMetadata
    return TreeAttnMetadata


@contextmanager
def _without_warnings(logger_name: str) -> Iterator[None]:
    """Holds back a logger's own warnings: xformers' is about kernels that nothing here uses."""
    logger = logging.getLogger(logger_name)

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
