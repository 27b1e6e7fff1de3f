"""Finds the draft tree with the greatest expected acceptance length, by the heads' measured accuracies.

`accuracy`, [heads][ranks], is the probability that the next tokens of the text have each rank among a head's tokens.
`paths` are joint probabilities of ranks of several heads, if they were measured. A path has a rank per head, from the
first head on, like a node of a tree.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

Path = tuple[int, ...]
Accuracy = Sequence[Sequence[float]]
Paths = Mapping[Path, float]


def path_probability(path: Sequence[int], accuracy: Accuracy, paths: Paths | None = None) -> float:
    """Returns the probability that the next tokens have exactly these ranks.

    The longest jointly measured prefix counts; the heads after it are taken as independent. No path is more probable
    than its prefix, even if measurements of different samples contradict each other.

    Args:
        path: rank per head, from the first head on; an empty path has probability 1.
        accuracy: probability per head and rank; missing ones are 0.
        paths: measured joint probabilities; None without any.
    """
    probability = 1.0
    for head, rank in enumerate(path):
        joint = None if paths is None else paths.get(tuple(path[: head + 1]))
        probability = probability * _accuracy(accuracy, head, rank) if joint is None else min(probability, joint)
    return probability


def expected_acceptance_length(
    choices: Iterable[Sequence[int]], accuracy: Accuracy, paths: Paths | None = None
) -> float:
    """Returns the expected tokens per step with this tree: 1 + the sum of its paths' probabilities.

    A node is accepted if and only if all tokens of its path are, as verification walks down from the text and siblings
    are different tokens. So the expected number of accepted nodes is the sum of their probabilities. The recovered or
    bonus token adds 1.

    Args:
        choices: paths of all nodes of a tree, with all of their prefixes.
        accuracy: see `path_probability`.
        paths: see `path_probability`.
    """
    return 1.0 + sum(path_probability(path, accuracy, paths) for path in choices)


def best_choices(num_nodes: int, max_depth: int, accuracy: Accuracy, paths: Paths | None = None) -> tuple[Path, ...]:
    """Finds the tree of at most `num_nodes` nodes with the greatest expected acceptance length.

    Adds the most probable node whose parent is in the tree, one by one. No node is more probable than its parent, so
    these are the most probable of all nodes, and no other set of the same size has a greater sum.

    Args:
        num_nodes: maximum nodes.
        max_depth: maximum depth, at most the number of heads.
        accuracy: see `path_probability`.
        paths: see `path_probability`.

    Returns:
        Paths by falling probability, of equal ones shorter paths and lower ranks first; fewer if all others have
        probability 0.
    """
    chosen: list[Path] = []
    waiting: list[tuple[float, int, Path]] = []

    def offer_children(parent: Path) -> None:
        if len(parent) >= min(max_depth, len(accuracy)):
            return
        for rank in range(len(accuracy[len(parent)])):
            path = (*parent, rank)
            probability = path_probability(path, accuracy, paths)
            if probability > 0:
                heapq.heappush(waiting, (-probability, len(path), path))

    offer_children(())
    while waiting and len(chosen) < num_nodes:
        path = heapq.heappop(waiting)[-1]
        chosen.append(path)
        offer_children(path)
    return tuple(chosen)


def _accuracy(accuracy: Accuracy, head: int, rank: int) -> float:
    return accuracy[head][rank] if head < len(accuracy) and rank < len(accuracy[head]) else 0.0
