"""Shapes of draft trees: paths, parents, depths and chains of their nodes."""

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

    Equal trees are one object (`topology`, `by_priority`), so that caches find them by identity. Indices of nodes are
    depth first: a parent right before its first child, siblings by rank.

    Attributes:
        choices: path of each node, its ranks among siblings from the root on: Medusa's "choices".
        numbers: number of each node in the order of priority that the tree was cut from, parents before children.
        parents: parent of each node, -1 for the end of the text.
        depths: depth of each node; nodes right after the text have 1.
        chains: nodes on the path to each leaf, in the order of the leaves.
    """

    choices: tuple[Path, ...]
    numbers: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]

    @property
    def num_nodes(self) -> int:
        """Number of draft tokens."""
        return len(self.choices)

    @property
    def depth(self) -> int:
        """Nodes on the longest path; 0 without nodes."""
        return max(self.depths, default=0)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """Nodes by priority, the order of tokens for the scheduler, which cuts drafts at the end."""
        return tuple(sorted(range(self.num_nodes), key=self.numbers.__getitem__))

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Per depth, the number of siblings to choose: the highest rank plus 1."""
        ranks = [0] * self.depth
        for path in self.choices:
            ranks[len(path) - 1] = max(ranks[len(path) - 1], path[-1] + 1)
        return tuple(ranks)

    def first(self, num_nodes: int) -> "Topology":
        """Returns the tree of the first `num_nodes` nodes by priority."""
        return self._part(self.order[: max(num_nodes, 0)])

    def within(self, depth: int) -> "Topology":
        """Returns the tree without the nodes deeper than `depth`."""
        return self if depth >= self.depth else self._part([n for n, d in enumerate(self.depths) if d <= depth])

    def path_to(self, node: int) -> tuple[int, ...]:
        """Returns the nodes on the path to `node`; empty for -1, the end of the text."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def _part(self, nodes: Sequence[int]) -> "Topology":
        if len(nodes) == self.num_nodes:
            return self
        kept = sorted(nodes)
        return _build(tuple([self.choices[node] for node in kept]), tuple([self.numbers[node] for node in kept]))


def topology(choices: Iterable[Sequence[int]]) -> Topology:
    """Returns the tree of these nodes, numbered depth first; the same object each time.

    Args:
        choices: path of each node, in any order. Ranks may be left out.

    Raises:
        ValueError: a path is empty, occurs twice, has no parent, or a rank is no integer from 0 on.
    """
    paths = [_path(path) for path in choices]
    known = set(paths)
    for path in paths:
        if len(path) > 1 and path[:-1] not in known:
            raise ValueError(
                f"tree node {list(path)} has no parent: {list(path[:-1])} is not in the tree; "
                "list every prefix of a path"
            )
    if len(known) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"tree node {list(twice)} is listed twice; list each node once")
    return _build(tuple(sorted(paths)), tuple(range(len(paths))))


def by_priority(choices: Sequence[Sequence[int]]) -> Topology:
    """Returns the tree of these nodes, numbered as they are listed; the same object each time.

    Args:
        choices: path of each node, after its parent's.

    Raises:
        ValueError: as `topology`, or a node is listed before its parent.
    """
    tree = topology(choices)
    number = {tuple(path): i for i, path in enumerate(choices)}
    numbers = tuple([number[path] for path in tree.choices])
    for node, parent in enumerate(tree.parents):
        if parent >= 0 and numbers[parent] > numbers[node]:
            raise ValueError(f"tree node {list(tree.choices[node])} is listed before its parent")
    return _build(tree.choices, numbers)


def chain(length: int) -> Topology:
    """Returns a chain of `length` nodes; 0 is the empty tree."""
    return _build(tuple((0,) * depth for depth in range(1, length + 1)), tuple(range(length)))


def _path(path: object) -> Path:
    if isinstance(path, str) or not isinstance(path, Sequence) or not path:
        raise ValueError(f"tree node {path!r} is not a path: a node is a list of ranks, [0] or [0, 2]")
    for rank in path:
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            raise ValueError(
                f"tree node {list(path)}: rank {rank!r} must be an integer of at least 0 (0 is the most likely)"
            )
    return tuple(path)


@functools.lru_cache(maxsize=4096)
def _build(choices: tuple[Path, ...], numbers: tuple[int, ...]) -> Topology:
    """Returns the tree of valid `choices` in depth-first order, which is the lexicographic one."""
    return Topology(choices, numbers, *_shape(choices))


# Parents, depths and chains of a topology.
_Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]


@functools.lru_cache(maxsize=4096)
def _shape(choices: tuple[Path, ...]) -> _Shape:
    count = len(choices)
    if not count or len(choices[-1]) == count:
        trunk = (tuple(range(count)),) if count else ()
        return tuple(range(-1, count - 1)), tuple(range(1, count + 1)), trunk
    xformers = _tree_attention_metadata()
    return _from_paths(choices) if xformers is None else _from_xformers(xformers, choices)


def _from_xformers(tree_attention_metadata: Any, choices: tuple[Path, ...]) -> _Shape:
    metadata = tree_attention_metadata.from_tree_choices(list(choices), device="cpu")
    # xformers sorts by length first, counts the root as node 0, and leaves the paths unsorted.
    index = {path: i for i, path in enumerate(choices)}
    ours = [-1, *(index[path] for path in metadata.tree_choices)]
    parents, depths = [0] * len(choices), [0] * len(choices)
    per_node = zip(metadata.parent_node_indices.tolist(), metadata.tree_seq_position_ids.tolist()[1:], strict=True)
    for node, (parent, depth) in zip(ours[1:], per_node, strict=True):
        parents[node], depths[node] = ours[parent], depth
    ways = (tuple(ours[node] for node in way if node > 0) for way in metadata.retrieval_indices.tolist())
    return tuple(parents), tuple(depths), tuple(sorted(ways, key=lambda way: way[-1]))


def _from_paths(choices: tuple[Path, ...]) -> _Shape:
    index = {path: node for node, path in enumerate(choices)}
    parents = tuple(index.get(path[:-1], -1) for path in choices)
    leaves = (path for node, path in enumerate(choices) if node not in parents)
    chains = tuple(tuple(index[leaf[: depth + 1]] for depth in range(len(leaf))) for leaf in leaves)
    return parents, tuple(map(len, choices)), chains


def _tree_attention_metadata() -> Any:
    """Imports xformers' `TreeAttnMetadata`, which takes seconds; None if xformers is not installed."""
    with _without_warnings("xformers"):
        try:
            from xformers.ops.tree_attention import TreeAttnMetadata
        except ImportError:
            return None
    return TreeAttnMetadata


@contextmanager
def _without_warnings(logger_name: str) -> Iterator[None]:
    """Suppresses a logger's warnings: xformers warns about kernels that are not used here."""
    logger = logging.getLogger(logger_name)

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
