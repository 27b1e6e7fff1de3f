"""Drafting modes: where drafts are made and verified, and the plugin's classes for each."""

from dataclasses import dataclass, replace
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
    """Schedulers and workers of a kind of drafting, and its verifier.

    Attributes:
        schedulers: classes for synchronous and asynchronous scheduling; the last is None where there is no such.
        workers: class by platform.
        from_text: whether the scheduler's process drafts.
        vllm_verifies: whether vLLM's sampler verifies; else the plugin's does, on the V1 runner.
        needs_v2: whether it drafts on the V2 runner only.
    """

    schedulers: tuple[str, str | None]
    workers: dict[str, str]
    from_text: bool
    vllm_verifies: bool
    needs_v2: bool = False


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
# On the V2 runner: texts alone, heads alone, and heads where texts have nothing.
TEXT = DraftingMode(
    (f"{_SCHEDULING}.text.TextScheduler", None), _workers("Text"), from_text=True, vllm_verifies=True, needs_v2=True
)
HEADS = replace(NATIVE, workers=_workers("Text"), needs_v2=True)
MIXED_HEADS = replace(MIXED, needs_v2=True)


def mode_of(config: "PluginConfig") -> DraftingMode:
    """Returns the mode of a configuration; the environment chooses the runner of texts and heads."""
    *texts, last = config.proposers
    if config.is_native:
        return MIXED if texts else NATIVE
    if not wants_v2():
        return IN_WORKERS
    if config.drafts_from_text:
        return TEXT
    if last.drafts_on_v2 and all(text.drafts_from_text for text in texts):
        return MIXED_HEADS if texts else HEADS
    return IN_WORKERS


def speculative_config(config: "PluginConfig", mode: DraftingMode) -> dict[str, Any]:
    """vLLM's `speculative_config`."""
    tokens = config.draft_length.tokens
    if config.native is not None:
        native = {**config.native.config, "num_speculative_tokens": tokens}
        if (method := config.verification.method) in ("block", "token"):
            native["rejection_sample_method"] = "block" if method == "block" else "standard"
        return native
    if mode.needs_v2:
        # vLLM's n-gram drafter, which needs no model; `compat.v2` puts the plugin's in its place.
        settings = {"method": "ngram_gpu", "prompt_lookup_min": 1, "prompt_lookup_max": 1}
        return {**settings, "num_speculative_tokens": tokens}
    return {"method": "custom_class", "model": frontend.PROPOSER, "num_speculative_tokens": tokens}
