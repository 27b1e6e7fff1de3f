"""Drafts with the plugin's Medusa heads on vLLM's V2 runner."""

from typing import TYPE_CHECKING

import torch

from vllm_spec_plugin.compat.v2 import verify_own_drafts
from vllm_spec_plugin.config.settings import config_in

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import V2ModelRunner, VllmConfig


def draft_on_v2(runner: "V2ModelRunner", vllm_config: "VllmConfig") -> None:
    """Lets a V2 runner verify token-only drafts, and those of a configuration's last proposer.

    Args:
        runner: the runner, before its model is loaded.
        vllm_config: vLLM's configuration, with the plugin's in `additional_config`.
    """
    config = config_in(vllm_config.additional_config)
    if config.is_native or config.is_token_only:
        verify_own_drafts(runner, keeps_drafter=config.is_native)
        return
    model = vllm_config.model_config
    assert isinstance(model.dtype, torch.dtype)
    sizes = model.get_hidden_size(), model.get_vocab_size()
    draft = config.proposers[-1].draft_from_states(config.draft_length.tokens, *sizes, model.dtype, runner.device)
    verify_own_drafts(runner, draft, shares_noise=config.shares_noise_on_v2)
