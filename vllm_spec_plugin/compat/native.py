"""vLLM's own drafters: its asynchronous scheduler, which of them can draft less in a step, and a fault of V1's."""

from typing import TYPE_CHECKING

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import VllmConfig

__all__ = ["AsyncScheduler", "can_shorten", "holds_min_tokens_too_long", "samples_drafts"]

# On the V1 runner; as for vLLM's own table of lengths by batch size. The V2 runner cuts all drafters' drafts.
_SHORTENED_ON_V1 = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")


def can_shorten(vllm_config: "VllmConfig") -> bool:
    """Whether the drafter may be told to draft fewer tokens in a step, or none."""
    # Replicas that run one drafter in step with each other must draft alike.
    if vllm_config.parallel_config.data_parallel_size > 1:
        return False
    speculative = vllm_config.speculative_config
    assert speculative is not None
    return vllm_config.use_v2_model_runner or speculative.method in _SHORTENED_ON_V1


def holds_min_tokens_too_long(vllm_config: "VllmConfig") -> bool:
    """Whether the token after accepted drafts may not end a request whose `min_tokens` these drafts have reached.

    V1's sampler masks stop tokens of that token by the output's length before the step; V2's knows its position.
    """
    return not vllm_config.use_v2_model_runner


def samples_drafts(vllm_config: "VllmConfig") -> bool:
    """Whether the drafter samples its drafts, where requests sample their outputs."""
    speculative = vllm_config.speculative_config
    assert speculative is not None
    return speculative.draft_sample_method == "probabilistic"
