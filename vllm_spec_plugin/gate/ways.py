"""Ways to draft: a configuration's proposers on one of vLLM's runners, with synchronous or asynchronous scheduling."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig


class Way(StrEnum):
    """Every way to draft. A rule of the gate names those it refuses; tests give each way's answer to the others."""

    OWN = "own proposers, V1"
    TOKEN_ONLY_V1 = "token-only, V1"
    VLLM_V1 = "vLLM's drafter, V1"
    VLLM_V2 = "vLLM's drafter, V2"
    VLLM_ASYNC = "vLLM's drafter, asynchronous"
    TOKEN_ONLY = "token-only, V2"
    HEADS = "Medusa heads, V2"
    HEADS_ASYNC = "Medusa heads, asynchronous"
    TOKEN_ONLY_VLLM_V1 = "token-only > vLLM's drafter, V1"
    TOKEN_ONLY_VLLM_V2 = "token-only > vLLM's drafter, V2"
    TOKEN_ONLY_HEADS = "token-only > Medusa heads, V2"


class Part(StrEnum):
    """Parts of own proposers for which further rules hold."""

    TREES = "trees"
    DRAFT_MODEL = "a draft model"
    GRAMMAR = "grammars"


def way_of(config: "PluginConfig", *, is_v2: bool, is_async: bool) -> Way:
    """Returns the way in which a configuration drafts.

    Args:
        config: the plugin's configuration.
        is_v2: whether vLLM's V2 runner serves it.
        is_async: whether the next step is planned before the outcome of the last one is known.
    """
    is_cascade = len(config.proposers) > 1
    if config.is_native and is_cascade:
        return Way.TOKEN_ONLY_VLLM_V2 if is_v2 else Way.TOKEN_ONLY_VLLM_V1
    if config.is_native:
        return Way.VLLM_ASYNC if is_async else Way.VLLM_V2 if is_v2 else Way.VLLM_V1
    if not is_v2:
        return Way.TOKEN_ONLY_V1 if config.is_token_only else Way.OWN
    if config.is_token_only:
        return Way.TOKEN_ONLY
    if is_cascade:
        return Way.TOKEN_ONLY_HEADS
    return Way.HEADS_ASYNC if is_async else Way.HEADS


def parts_of(config: "PluginConfig") -> frozenset[Part]:
    """Returns the parts of a configuration for which further rules hold."""
    found = {
        Part.TREES: config.drafts_trees,
        Part.DRAFT_MODEL: config.kv_proposer is not None,
        Part.GRAMMAR: any(proposer.uses_grammar for proposer in config.proposers),
    }
    return frozenset(part for part, is_there in found.items() if is_there)
