"""vLLM's model runners: what is different about them while ours is built or keeps book."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def all_logits_processors() -> Iterator[None]:
    """While it lasts, a runner is built with min-p and logit bias, which vLLM leaves out with speculation.

    Custom processors stay refused: nothing tells how to apply them at speculated positions.
    """
    from vllm.v1.sample import logits_processor
    from vllm.v1.worker import gpu_model_runner

    stock = gpu_model_runner.build_logitsprocs

    def build(vllm_config: Any, device: Any, is_pin_memory: bool, is_pooling: bool, custom: Any = ()) -> Any:
        if custom:
            raise ValueError(logits_processor.STR_SPEC_DEC_REJECTS_LOGITSPROCS)
        return logits_processor.LogitsProcessors(
            make(vllm_config, device, is_pin_memory) for make in logits_processor.BUILTIN_LOGITS_PROCESSORS
        )

    gpu_model_runner.build_logitsprocs = build
    try:
        yield
    finally:
        gpu_model_runner.build_logitsprocs = stock


@contextlib.contextmanager
def without_generators(runner: Any) -> Iterator[None]:
    """Hides the requests' generators from vLLM's bookkeeping.

    It winds the generator of a request that is still in its prompt back by one draw, which raises on
    CPU; our scorer draws nothing from generators.
    """
    generators = runner.input_batch.generators
    runner.input_batch.generators = {}
    try:
        yield
    finally:
        runner.input_batch.generators = generators


def hide_speculation(runner: Any) -> None:
    """Has vLLM run the rest of a step, which neither verifies nor drafts, as if speculation were not configured.

    With it, vLLM prepares every step for drafts: 0.1 ms a step on a CPU.
    """
    runner.hidden_speculation, runner.speculative_config = runner.speculative_config, None


def show_speculation(runner: Any) -> None:
    """Undoes `hide_speculation`, if it was called."""
    if runner.hidden_speculation is not None:
        runner.speculative_config, runner.hidden_speculation = runner.hidden_speculation, None


def booked_tokens(booked: Any) -> list[list[int]]:
    """Per request the tokens that vLLM's bookkeeping appended to its text."""
    token_ids: list[list[int]] = booked[3]
    return token_ids


def attention_layers(runner: Any) -> set[str]:
    """Names of all attention layers that have a part of the KV cache, a draft model's too."""
    return {name for group in runner.kv_cache_config.kv_cache_groups for name in group.layer_names}


def attention_groups_of_target(runner: Any, draft_layers: set[str]) -> list[list[Any]]:
    """Per KV cache group vLLM's attention groups, but for last ones that have the draft model's layers only."""
    groups_of_target = [list(groups) for groups in runner.attn_groups]
    for groups in groups_of_target:
        # Last ones only: vLLM finds groups by their place.
        while groups and draft_layers.issuperset(groups[-1].layer_names):
            groups.pop()
    return groups_of_target


def tensor_parallel_cpu_group() -> Any:
    """The CPU process group of the ranks that run the same steps with this one; None where there is but one."""
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    return group.cpu_group if group.world_size > 1 else None


def dummy_step(runner: Any, num_tokens: int) -> None:
    """Runs the target over that many tokens of no request, with their logits, and waits until it is through."""
    hidden, last = runner._dummy_run(num_tokens, skip_eplb=True)
    # The adapters of a dummy step are laid out for one row of logits per request.
    runner.model.compute_logits(last if runner.lora_config else hidden[:num_tokens])
    runner._sync_device()
