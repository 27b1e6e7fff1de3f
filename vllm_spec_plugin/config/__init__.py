"""The configuration file: its keys, their bounds, and which combinations are allowed."""

from vllm_spec_plugin.config.cascade import CascadeConfig
from vllm_spec_plugin.config.draft_length import (
    MAX_TOKENS,
    FixedDraftLength,
    OptimalDraftLength,
    RandomDraftLength,
)
from vllm_spec_plugin.config.loading import load_config, parse_config
from vllm_spec_plugin.config.plugin import PluginConfig, VerificationConfig
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.medusa.config import MedusaConfig
from vllm_spec_plugin.proposers.ngram.config import NgramConfig
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_plugin.schema.errors import ConfigError

__all__ = [
    "MAX_TOKENS",
    "CascadeConfig",
    "ConfigError",
    "DraftModelConfig",
    "FixedDraftLength",
    "MedusaConfig",
    "NgramConfig",
    "OptimalDraftLength",
    "PluginConfig",
    "RandomDraftLength",
    "SuffixConfig",
    "VerificationConfig",
    "load_config",
    "parse_config",
]
