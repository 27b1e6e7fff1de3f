"""Which of the heads' tokens are drafted."""

from dataclasses import dataclass
from typing import Literal

from vllm_spec_plugin.proposers.medusa.best_tree import best_choices, expected_acceptance_length
from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, SAMPLED, MedusaConfig, check_measured
from vllm_spec_plugin.verification.topology import Topology, chain, topology


@dataclass(frozen=True)
class DraftShapes:
    """The trees that are drafted where there is room for them.

    Attributes:
        greedy: of requests at temperature 0.
        sampled: of the others.
        expected: tokens per step that they promise, by what was measured; None where nothing was.
    """

    greedy: Topology
    sampled: Topology
    expected: tuple[float, float] | None = None

    @property
    def depth(self) -> int:
        """Of the deeper one: so many heads are needed."""
        return max(self.greedy.depth, self.sampled.depth)

    def __str__(self) -> str:
        if self.expected is None:
            return f"{self.greedy.num_nodes} tokens"
        parts = zip(("greedy", "sampled"), (self.greedy, self.sampled), self.expected, strict=True)
        return "; ".join(
            f"{use}: {shape.num_nodes} tokens, {length:.2f} per step expected, {[list(path) for path in shape.choices]}"
            for use, shape, length in parts
        )


def draft_shapes(
    wanted: Literal["auto"] | tuple[tuple[int, ...], ...] | None, num_tokens: int, heads: MedusaConfig, *, draws: bool
) -> DraftShapes:
    """What to draft.

    Requests at temperature 0 go on as the heads expect far more often than sampled ones: their best trees differ.

    Args:
        wanted: paths of ranks; auto is the best trees by the heads' measured accuracies; None is a chain.
        num_tokens: most nodes.
        heads: what is known of them.
        draws: whether drafts of sampled requests are drawn.

    Raises:
        MedusaCheckpointError: the best tree is wanted of heads that nobody measured.
    """
    if wanted != "auto":
        shape = chain(min(num_tokens, heads.num_heads)) if wanted is None else topology(wanted)
        return DraftShapes(shape, shape)
    check_measured(heads)
    shapes, lengths = [], []
    for use in (GREEDY, DRAWN if draws else SAMPLED):
        measured = (heads.accuracy or (), dict((heads.paths or {}).get(use, {})))
        choices = best_choices(num_tokens, heads.num_heads, *measured)
        shapes.append(topology(choices))
        lengths.append(expected_acceptance_length(choices, *measured))
    return DraftShapes(shapes[0], shapes[1], (lengths[0], lengths[1]))
