"""How large a tree of Medusa's to measure, by what its heads were measured to do when they were made. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.proposers.medusa.best_tree import Accuracy, Path, best_choices, expected_acceptance_length
from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, MedusaConfig
from vllm_spec_tools.bench.curves import StepCurve
from vllm_spec_tools.planner.forecast import acceptance_of, pooled_curve
from vllm_spec_tools.planner.samples import Measured
from vllm_spec_tools.planner.traffic import Workload


class NoTreeError(ValueError):
    """There is no tree to measure; str() says why."""


@dataclass(frozen=True)
class Chained:
    """How the heads' chains fare in a workload.

    Attributes:
        accuracy: per head and rank, as the heads say.
        paths: probabilities of ranks together, as the heads say, for requests of this temperature.
    """

    share: float
    accuracy: Accuracy
    paths: Mapping[Path, float]
    length: int
    tokens_per_step: float

    def choices(self, size: int) -> tuple[Path, ...]:
        """Returns the best tree per number of tokens."""
        return best_choices(size, len(self.accuracy), self.accuracy, self.paths)

    def expected(self, choices: Sequence[Path]) -> float:
        """Tokens per step that a tree is expected to give here.

        What the heads promise of it, scaled by what their chain does here over what they promise of that.
        """
        chain = [(0,) * depth for depth in range(1, self.length + 1)]
        promised = expected_acceptance_length(chain, self.accuracy, self.paths) - 1
        fit = (self.tokens_per_step - 1) / promised if promised else 0.0
        return 1 + fit * (expected_acceptance_length(choices, self.accuracy, self.paths) - 1)


def tree_size(
    heads: MedusaConfig, measured: Measured, workloads: Sequence[Workload], levels: Sequence[int], most: int
) -> int:
    """The size whose best tree promises most.

    Args:
        levels: requests at once.

    Raises:
        NoTreeError: the heads do not say how accurate they are, or a chain is as good as any tree.
    """
    if heads.accuracy is None:
        raise NoTreeError(
            "Trees of Medusa's were not measured: the heads do not say how accurate they are "
            "(`vllm-spec train-medusa --from HEADS --steps 0` measures it)."
        )
    (candidate,) = measured.engine.candidates
    length = candidate.lengths[-1]
    chained = []
    for workload in workloads:
        paths = dict((heads.paths or {}).get(DRAWN if workload.temperature else GREEDY, {}))
        found = acceptance_of(measured, candidate, length, workload.name)
        chained.append(Chained(workload.share, heads.accuracy, paths, length, found.tokens_per_step))
    size = best_tree_size(chained, {level: pooled_curve(measured, level) for level in levels}, most)
    if all(not any(any(path) for path in one.choices(size)) for one in chained):
        raise NoTreeError(f"Trees of Medusa's were not measured: with what steps cost, the best is a chain of {size}.")
    return size


def best_tree_size(chained: Sequence[Chained], curves: Mapping[int, StepCurve], most: int) -> int:
    """The number of tokens whose best tree promises most tokens per second, all levels counting alike.

    Args:
        chained: per workload; at least one.
        curves: seconds of a target step by tokens, by concurrency.
        most: tokens of a tree, at least 1.
    """

    def worth(size: int) -> float:
        tokens = sum(one.share * one.expected(one.choices(size)) for one in chained)
        return sum(math.log(tokens / curve.at(level * (1 + size))) for level, curve in curves.items())

    return max(range(1, most + 1), key=worth)
