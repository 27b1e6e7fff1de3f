"""The draft tree that heads' measured accuracies promise most of.

Of each head it is known how often the right token has which rank among its guesses (`accuracy`, [heads][ranks],
over all positions), and perhaps also how often the right tokens have given ranks together (`paths`). A path
names ranks from the first head on, as a tree's nodes do.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

Path = tuple[int, ...]
Accuracy = Sequence[Sequence[float]]
Paths = Mapping[Path, float]


def path_probability(path: Sequence[int], accuracy: Accuracy, paths: Paths | None = None) -> float:
    """How likely the right tokens have exactly these ranks.

    What was measured jointly counts; what goes on beyond it is taken as independent of it: its heads'
    accuracies are multiplied. No path is likelier than its beginning, even where measurements that were taken
    of different samples contradict each other.

    Args:
        path: one rank per head, from the first head on; empty is certain.
        accuracy: per head and rank; what is not listed is 0.
        paths: joint probabilities, where they were measured.
    """
    probability = 1.0
    for head, rank in enumerate(path):
        joint = None if paths is None else paths.get(tuple(path[: head + 1]))
        probability = probability * _accuracy(accuracy, head, rank) if joint is None else min(probability, joint)
    return probability


def expected_acceptance_length(
    choices: Iterable[Sequence[int]], accuracy: Accuracy, paths: Paths | None = None
) -> float:
    """How many tokens a step gives on average if it verifies this tree: 1 + the sum of its paths' probabilities.

    A node is accepted if and only if the whole path to it is right, since verification walks down from the
    text and siblings are different tokens. So at each depth at most one node is accepted, the accepted nodes
    are as many as the walk is deep, and their expected number is the sum of each one's probability. The
    recovered or bonus token is always there: 1.

    Args:
        choices: all nodes of a tree, each as its path; each node's parent among them.
        accuracy: see `path_probability`.
        paths: see `path_probability`.
    """
    return 1.0 + sum(path_probability(path, accuracy, paths) for path in choices)


def best_choices(num_nodes: int, max_depth: int, accuracy: Accuracy, paths: Paths | None = None) -> tuple[Path, ...]:
    """The tree of at most `num_nodes` nodes that has the greatest expected acceptance length.

    The likeliest node whose parent is in is added until there are enough. No node is likelier than its
    parent, so these are the likeliest of all nodes, and no other set of as many has a greater sum.

    Args:
        num_nodes: how many may be verified.
        max_depth: of the deepest node; there are no more than heads anyway.
        accuracy: see `path_probability`.
        paths: see `path_probability`.

    Returns:
        Paths by falling probability; fewer where all others are impossible.
    """
    chosen: list[Path] = []
    # Of equally likely ones the shorter comes first, then the one of lower ranks.
    likeliest: list[tuple[float, int, Path]] = []

    def offer_children(parent: Path) -> None:
        if len(parent) >= min(max_depth, len(accuracy)):
            return
        for rank in range(len(accuracy[len(parent)])):
            path = (*parent, rank)
            probability = path_probability(path, accuracy, paths)
            if probability > 0:
                heapq.heappush(likeliest, (-probability, len(path), path))

    offer_children(())
    while likeliest and len(chosen) < num_nodes:
        path = heapq.heappop(likeliest)[-1]
        chosen.append(path)
        offer_children(path)
    return tuple(chosen)


def _accuracy(accuracy: Accuracy, head: int, rank: int) -> float:
    return accuracy[head][rank] if head < len(accuracy) and rank < len(accuracy[head]) else 0.0
