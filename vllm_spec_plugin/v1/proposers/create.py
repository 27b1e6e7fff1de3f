"""Builds proposers in a V1 worker."""

import functools
import logging
from typing import Any

from vllm_spec_plugin.proposers import registry
from vllm_spec_plugin.proposers.base import Proposer
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.medusa.config import MedusaConfig
from vllm_spec_plugin.proposers.section import ProposerConfig

logger = logging.getLogger("vllm.vllm_spec_plugin")


@functools.singledispatch
def create_proposer(config: ProposerConfig, num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    """Builds a proposer; see `ProposerConfig.create`. Methods with a model of the plugin's are built here alone."""
    return registry.create_proposer(config, num_tokens, vocab_size, engine)


@create_proposer.register
def _(config: DraftModelConfig, num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    from vllm_spec_plugin.v1.proposers.draft_model.proposer import DraftModelProposer

    return DraftModelProposer(engine, config.samples, config.catch_up_tokens)


@create_proposer.register
def _(config: Eagle3Config, num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    import sys

    from vllm_spec_plugin.v1.proposers.eagle3 import Eagle3Proposer

    # As many tokens as there are hidden states for.
    return Eagle3Proposer(engine, config.samples, catch_up_tokens=sys.maxsize)


@create_proposer.register
def _(config: MedusaConfig, num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config
    from vllm_spec_plugin.proposers.medusa.shape import describe
    from vllm_spec_plugin.v1.proposers.medusa import MedusaProposer

    order, draws = config.node_order(num_tokens), config.samples
    logger.info("Medusa heads draft %s", describe(order, read_heads_config(config.model), draws=draws))
    heads = load_heads(config.model, engine.hidden_size, vocab_size, engine.dtype, engine.device, order.tree.depth)
    return MedusaProposer(heads, engine, order.tree, draws=draws)
