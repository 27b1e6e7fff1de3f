"""Drafting modes: where drafts are made and verified, and the plugin's classes for each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.engine_choice import wants_v2
from vllm_spec_plugin.register import frontend

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig

_SCHEDULING = "vllm_spec_plugin.scheduling"


def _workers(kind: str) -> dict[str, str]:
    return {name: f"vllm_spec_plugin.forward.{name}.{kind}{name.upper()}Worker" for name in ("cpu", "cuda")}


@dataclass(frozen=True)
class DraftingMode:
    """Where drafts are made and who verifies them.

    Attributes:
        schedulers: classes for synchronous and asynchronous scheduling; the last is None where there is no such.
        workers: class by platform.
        from_text: whether the scheduler's process drafts.
        vllm_verifies: whether vLLM's sampler verifies; else the plugin's does, on the V1 runner.
    """

    schedulers: tuple[str, str | None]
    workers: dict[str, str]
    from_text: bool
    vllm_verifies: bool


IN_WORKERS = DraftingMode(
    (f"{_SCHEDULING}.scheduler.SpecScheduler", None),
    _workers("Spec"),
    from_text=False,
    vllm_verifies=False,
)
# vLLM's drafters.
NATIVE = DraftingMode(
    (f"{_SCHEDULING}.native.NativeScheduler", f"{_SCHEDULING}.native.NativeAsyncScheduler"),
    _workers("Native"),
    from_text=False,
    vllm_verifies=True,
)
# Texts, and one of vLLM's drafters where these have nothing.
MIXED = DraftingMode(
    (f"{_SCHEDULING}.mixed.MixedScheduler", None), _workers("Text"), from_text=True, vllm_verifies=True
)
# Texts alone, on the V2 runner.
TEXT = DraftingMode((f"{_SCHEDULING}.text.TextScheduler", None), _workers("Text"), from_text=True, vllm_verifies=True)


def mode_of(config: "PluginConfig") -> DraftingMode:
    """Returns the mode of a configuration; the environment chooses the runner of texts."""
    if config.is_native:
        return MIXED if len(config.proposers) > 1 else NATIVE
    return TEXT if wants_v2() and config.drafts_from_text else IN_WORKERS


def speculative_config(config: "PluginConfig", mode: DraftingMode) -> dict[str, Any]:
    """vLLM's `speculative_config`."""
    tokens = config.draft_length.tokens
    if config.native is not None:
        return {**config.native.config, "num_speculative_tokens": tokens}
    if mode is TEXT:
        # vLLM's n-gram drafter, which needs no model, stands where `compat.v2` lets none draft.
        settings = {"method": "ngram_gpu", "prompt_lookup_min": 1, "prompt_lookup_max": 1}
        return {**settings, "num_speculative_tokens": tokens}
    return {"method": "custom_class", "model": frontend.PROPOSER, "num_speculative_tokens": tokens}
