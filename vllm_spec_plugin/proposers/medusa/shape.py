"""Chooses the nodes of drafts with Medusa heads, and orders them by path probability."""

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
from vllm_spec_plugin.proposers.medusa.heads_config import DRAWN, GREEDY, SAMPLED, HeadsConfig, check_measured
from vllm_spec_plugin.proposers.node_order import NodeOrder, default_probability


def node_order(
    tree: Literal["auto"] | tuple[Path, ...] | None, num_tokens: int, heads: HeadsConfig, *, draws: bool
) -> NodeOrder:
    """Orders the nodes to draft by path probability.

    Acceptance is far higher at temperature 0 than above. All requests have the same order, by the mean of both; the
    policy of draft lengths adapts the number of nodes.

    Args:
        tree: paths of ranks; auto is the best tree by the heads' measured accuracies; None is a chain.
        num_tokens: maximum nodes.
        heads: description of the heads.
        draws: whether drafts of sampled requests are sampled.

    Raises:
        UnreadableError: `tree` is auto, and the heads have no measured accuracies.
    """
    if tree is None:
        return NodeOrder(tuple((0,) * depth for depth in range(1, min(num_tokens, heads.num_heads) + 1)))
    if tree == "auto":
        check_measured(heads)
    elif heads.accuracy is None:
        return NodeOrder.by_probability(tree, default_probability)
    accuracy, mean = heads.accuracy or (), _mean([paths for _, paths in _measured(heads, draws)], heads.accuracy or ())
    paths = best_choices(num_tokens, heads.num_heads, accuracy, mean) if tree == "auto" else tree
    return NodeOrder.by_probability(paths, lambda path: path_probability(path, accuracy, mean))


def describe(order: NodeOrder, heads: HeadsConfig, *, draws: bool) -> str:
    """Describes the draft's nodes, and the expected tokens per step of the whole tree, for the log.

    Args:
        order: nodes of the draft.
        heads: description of the heads.
        draws: whether drafts of sampled requests are sampled.
    """
    text = f"{len(order.paths)} tokens"
    if heads.accuracy is None:
        return text
    lengths = [
        f"{use}: {expected_acceptance_length(order.paths, heads.accuracy, paths):.2f}"
        for use, paths in _measured(heads, draws)
    ]
    return f"{text}, per step expected {', '.join(lengths)}: {[list(path) for path in order.paths]}"


def _measured(heads: HeadsConfig, draws: bool) -> list[tuple[str, Paths]]:
    """Returns the measured paths of requests at temperature 0, and of others."""
    return [(use, (heads.paths or {}).get(use, {})) for use in (GREEDY, DRAWN if draws else SAMPLED)]


def _mean(measured: Sequence[Paths], accuracy: Accuracy) -> dict[Path, float]:
    """Returns the mean probability of each measured path."""
    known = {path for paths in measured for path in paths}
    return {path: sum(path_probability(path, accuracy, paths) for paths in measured) / len(measured) for path in known}
