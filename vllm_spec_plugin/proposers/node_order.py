"""Orders the nodes of draft trees by path probability; every prefix of the order is a tree.

Scheduler and proposer derive it from the configuration: the scheduler chooses the number of nodes to draft, the
proposer drafts the first ones.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from vllm_spec_plugin.verification.topology import Path, Topology, by_priority

# Without measurements: acceptance probabilities of the first and the second sibling, and the ratio of each further
# one's to that of the sibling before. Only the order of their products matters.
FIRST, SECOND, RATIO = 0.75, 0.1, 0.5


def default_probability(path: Sequence[int]) -> float:
    """Estimates the probability that all tokens of these ranks are accepted, without measurements."""
    num_others = sum(rank > 0 for rank in path)
    return FIRST ** (len(path) - num_others) * SECOND**num_others * RATIO ** (sum(path) - num_others)


@dataclass(frozen=True)
class NodeOrder:
    """Nodes of a draft tree, the most probable first.

    Attributes:
        paths: path of each node, its ranks among siblings from the root on; parents before children, siblings by rank.
    """

    paths: tuple[Path, ...]

    @classmethod
    def by_probability(cls, paths: Iterable[Path], probability: Callable[[Path], float]) -> "NodeOrder":
        """Sorts nodes by the probability of their paths.

        No node counts as more probable than its parent or a sibling of lower rank, whatever was measured. Of equally
        probable nodes the shallower comes first, then the one of lower ranks.

        Args:
            paths: paths of all nodes of a tree.
            probability: function from a path to its probability.
        """
        bounded: dict[Path, float] = {}
        for path in sorted(paths, key=lambda path: (len(path), path)):
            bound = min(bounded.get(path[:-1], 1.0), _min_before(bounded, path))
            bounded[path] = min(probability(path), bound)
        return cls(tuple(sorted(bounded, key=lambda path: (-bounded[path], len(path), path))))

    @cached_property
    def tree(self) -> Topology:
        """All nodes; `tree.first(n)` is the first n of them."""
        return by_priority(self.paths)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """[nodes]: each node's parent in this order, -1 where that is the end of the text."""
        number = {path: i for i, path in enumerate(self.paths)}
        return tuple(number.get(path[:-1], -1) for path in self.paths)


def _min_before(probabilities: dict[Path, float], path: Path) -> float:
    """Returns the minimum probability of the siblings of lower rank; 1 if there are none."""
    siblings = ((*path[:-1], rank) for rank in range(path[-1]))
    return min((probabilities[sibling] for sibling in siblings if sibling in probabilities), default=1.0)
