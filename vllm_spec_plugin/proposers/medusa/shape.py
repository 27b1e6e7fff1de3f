"""Which of the heads' tokens are drafted, and in which order they are worth verifying."""

from collections.abc import Sequence
from typing import Literal

from vllm_spec_plugin.proposers.medusa.best_tree import (
    Accuracy,
    Path,
    Paths,
    best_choices,
    expected_acceptance_length,
    path_probability,
)
from vllm_spec_plugin.proposers.medusa.checkpoint import DRAWN, GREEDY, SAMPLED, MedusaConfig, check_measured
from vllm_spec_plugin.proposers.node_order import NodeOrder, default_probability


def node_order(
    wanted: Literal["auto"] | tuple[Path, ...] | None, num_tokens: int, heads: MedusaConfig, *, draws: bool
) -> NodeOrder:
    """Orders the nodes to draft by path probability.

    At temperature 0 the heads are right far more often than above it. The order is one for all requests, by the mean
    of both: what is accepted decides how many nodes a request drafts.

    Args:
        wanted: paths of ranks; auto is the best tree by the heads' measured accuracies; None is a chain.
        num_tokens: most nodes.
        heads: what is known of them.
        draws: whether drafts of sampled requests are drawn.

    Raises:
        MedusaCheckpointError: the best tree is wanted of heads that nobody measured.
    """
    if wanted is None:
        return NodeOrder(tuple((0,) * depth for depth in range(1, min(num_tokens, heads.num_heads) + 1)))
    if wanted == "auto":
        check_measured(heads)
    elif heads.accuracy is None:
        return NodeOrder.by_probability(wanted, default_probability)
    accuracy, mean = heads.accuracy or (), _mean([paths for _, paths in _measured(heads, draws)], heads.accuracy or ())
    paths = best_choices(num_tokens, heads.num_heads, accuracy, mean) if wanted == "auto" else wanted
    return NodeOrder.by_probability(paths, lambda path: path_probability(path, accuracy, mean))


def describe(order: NodeOrder, heads: MedusaConfig, *, draws: bool) -> str:
    """Tells what heads draft, and how many tokens per step the whole tree is expected to give.

    Args:
        order: the nodes.
        heads: what is known of them.
        draws: whether drafts of sampled requests are drawn.
    """
    text = f"{len(order.paths)} tokens"
    if heads.accuracy is None:
        return text
    lengths = [
        f"{use}: {expected_acceptance_length(order.paths, heads.accuracy, paths):.2f}"
        for use, paths in _measured(heads, draws)
    ]
    return f"{text}, per step expected {', '.join(lengths)}: {[list(path) for path in order.paths]}"


def _measured(heads: MedusaConfig, draws: bool) -> list[tuple[str, Paths]]:
    """The measured paths of requests at temperature 0 and of others."""
    return [(use, (heads.paths or {}).get(use, {})) for use in (GREEDY, DRAWN if draws else SAMPLED)]


def _mean(measured: Sequence[Paths], accuracy: Accuracy) -> dict[Path, float]:
    """The mean probability of each measured path."""
    known = {path for paths in measured for path in paths}
    return {path: sum(path_probability(path, accuracy, paths) for paths in measured) / len(measured) for path in known}
