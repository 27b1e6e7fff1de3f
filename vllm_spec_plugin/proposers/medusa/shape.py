"""Which of the heads' tokens are drafted."""

from typing import Literal

from vllm_spec_plugin.proposers.medusa.best_tree import best_choices
from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaConfig, check_measured
from vllm_spec_plugin.verification.topology import Topology, chain, topology


def draft_shape(
    wanted: Literal["auto"] | tuple[tuple[int, ...], ...] | None, num_tokens: int, heads: MedusaConfig
) -> Topology:
    """The tree that is drafted where there is room for it.

    Args:
        wanted: paths of ranks; auto is the best tree by the heads' measured accuracies; None is a chain.
        num_tokens: most nodes.
        heads: what is known of them.

    Raises:
        MedusaCheckpointError: the best tree is wanted of heads that nobody measured.
    """
    if wanted is None:
        return chain(min(num_tokens, heads.num_heads))
    if wanted != "auto":
        return topology(wanted)
    check_measured(heads)
    return topology(best_choices(num_tokens, heads.num_heads, heads.accuracy or (), dict(heads.paths or ())))
