"""From a configured method to its proposer."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.proposers.base import Proposer

if TYPE_CHECKING:
    from vllm_spec_plugin.config import DraftModelConfig, MedusaConfig, NgramConfig, SingleConfig

logger = logging.getLogger("vllm.vllm_spec_plugin")


def _ngram(config: "NgramConfig", num_tokens: int, vocab_size: int, engine: Any) -> Proposer:
    from vllm_spec_plugin.config import DEFAULT_WINDOW
    from vllm_spec_plugin.proposers.ngram import NgramProposer
    from vllm_spec_plugin.proposers.ngram.shared import SharedTexts

    shared = None
    if config.shared_tokens is not None:
        shared = SharedTexts(config.min_order, config.max_order, config.shared_tokens, vocab_size)
    return NgramProposer(
        mode=config.mode,
        min_order=config.min_order,
        max_order=config.max_order,
        window=config.window or DEFAULT_WINDOW,
        draft_sampling=config.draft_sampling,
        vocab_size=vocab_size,
        shared=shared,
    )


def _draft_model(config: "DraftModelConfig", num_tokens: int, vocab_size: int, engine: Any) -> Proposer:
    from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
    from vllm_spec_plugin.proposers.draft_model.proposer import DraftModelProposer

    settings = DraftSettings(
        draft_sampling=config.draft_sampling,
        draft_temperature=config.draft_temperature,
        min_confidence=config.min_confidence,
        catch_up_tokens=config.catch_up_tokens,
        branches=config.branches or (),
    )
    return DraftModelProposer(engine, settings)


def _medusa(config: "MedusaConfig", num_tokens: int, vocab_size: int, engine: Any) -> Proposer:
    from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config
    from vllm_spec_plugin.proposers.medusa.proposer import MedusaProposer
    from vllm_spec_plugin.proposers.medusa.shape import describe

    draws = config.draft_sampling == "probabilistic"
    order = config.node_order(num_tokens)
    logger.info("Medusa heads draft %s", describe(order, read_heads_config(config.model), draws=draws))
    depth = order.tree.depth
    heads = load_heads(config.model, engine.hidden_size, vocab_size, engine.dtype, engine.device, depth)
    return MedusaProposer(heads, engine, order.tree, draws=draws)


# Each creator imports its own proposer: nobody waits for what they do not use.
_CREATORS: dict[str, Callable[[Any, int, int, Any], Proposer]] = {
    "ngram": _ngram,
    "draft_model": _draft_model,
    "medusa": _medusa,
}


def create_proposer(config: "SingleConfig", num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    """Builds a proposer.

    Args:
        config: its `method` says which.
        num_tokens: most tokens of a draft.
        vocab_size: the target's.
        engine: what the method needs of the worker: a `DraftEngine` to run a draft model, a `StatesEngine`
            for what drafts from the target's hidden states.
    """
    return _CREATORS[config.method](config, num_tokens, vocab_size, engine)
