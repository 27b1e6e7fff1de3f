"""vLLM's model runners: changes while the plugin's runner is built, and during its bookkeeping."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.compat.patching import replaced

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import (
        AttentionGroup,
        GPUModelRunner,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheSpec,
        ModelRunnerOutput,
        VllmConfig,
    )


@contextlib.contextmanager
def all_logits_processors() -> Iterator[None]:
    """Makes vLLM build a runner with min-p and logit bias within the context, which it omits with speculation.

    Custom processors stay refused: they cannot be applied at draft positions.
    """
    from vllm.v1.sample import logits_processor
    from vllm.v1.worker import gpu_model_runner

    def build(
        vllm_config: "VllmConfig",
        device: torch.device,
        is_pin_memory: bool,
        is_pooling: bool,
        custom: Sequence[object] = (),
    ) -> logits_processor.LogitsProcessors:
        if custom:
            raise ValueError(logits_processor.STR_SPEC_DEC_REJECTS_LOGITSPROCS)
        return logits_processor.LogitsProcessors(
            make(vllm_config, device, is_pin_memory) for make in logits_processor.BUILTIN_LOGITS_PROCESSORS
        )

    with replaced(gpu_model_runner, "build_logitsprocs", build):
        yield


@contextlib.contextmanager
def without_generators(runner: "GPUModelRunner") -> Iterator[None]:
    """Hides the requests' generators from vLLM's bookkeeping.

    vLLM resets the generator of a request in prefill by one draw, which raises on CPU; the plugin's sampler uses no
    generators.
    """
    generators = runner.input_batch.generators
    runner.input_batch.generators = {}
    try:
        yield
    finally:
        runner.input_batch.generators = generators


def booked_tokens(booked: tuple[Any, ...]) -> list[list[int]]:
    """Returns per request the tokens that vLLM's bookkeeping appended to its text."""
    token_ids: list[list[int]] = booked[3]
    return token_ids


def attention_layers(runner: "GPUModelRunner") -> set[str]:
    """Returns the names of all attention layers with a part of the KV cache, a draft model's included."""
    return {name for group in runner.kv_cache_config.kv_cache_groups for name in group.layer_names}


def attention_groups_of_target(runner: "GPUModelRunner", draft_layers: set[str]) -> "list[list[AttentionGroup]]":
    """Returns vLLM's attention groups per KV cache group, without trailing ones of the draft model only."""
    groups_of_target = [list(groups) for groups in runner.attn_groups]
    for groups in groups_of_target:
        # Trailing ones only: vLLM finds groups by index.
        while groups and draft_layers.issuperset(groups[-1].layer_names):
            groups.pop()
    return groups_of_target


def tensor_parallel_cpu_group() -> torch.distributed.ProcessGroup | None:
    """Returns the CPU process group of the ranks that run the same steps; None for a single rank."""
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    return group.cpu_group if group.world_size > 1 else None


def check_gives_aux_states(runner: "GPUModelRunner") -> None:
    """Refuses a target whose class in vLLM cannot return hidden states of its layers.

    Raises:
        ValueError: names the target's class.
    """
    from vllm.model_executor.models.interfaces import supports_eagle3

    target = runner.get_model()
    if not supports_eagle3(target):
        raise ValueError(
            f"proposer.method: vLLM's {type(target).__name__} does not return hidden states of its layers, from which "
            "eagle3 drafts; allowed: a target of a class with SupportsEagle3, such as LlamaForCausalLM; choose another "
            "method"
        )


def aux_states(runner: "GPUModelRunner") -> torch.Tensor:
    """Returns [num_tokens, any], the hidden states of the target's auxiliary layers in a step of `step_spans`."""
    state = runner.execute_model_state
    assert state is not None
    assert state.aux_hidden_states is not None
    num_tokens = state.scheduler_output.total_num_scheduled_tokens
    return torch.cat([states[:num_tokens] for states in state.aux_hidden_states], -1)


def step_spans(runner: "GPUModelRunner") -> list[tuple[str, int, int]]:
    """Returns the tokens of the present step, between its forward pass and sampling.

    Returns:
        In the order of the batch each request's id, the position of its first token and the number of its tokens;
        empty if there was no forward pass.
    """
    state = runner.execute_model_state
    if state is None or state.aux_hidden_states is None:
        return []
    counts, batch = state.scheduler_output.num_scheduled_tokens, runner.input_batch
    first = batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
    return [(request_id, at, counts[request_id]) for request_id, at in zip(batch.req_ids, first, strict=True)]


def dummy_step(runner: "GPUModelRunner", num_tokens: int) -> None:
    """Runs the target over `num_tokens` dummy tokens, with their logits, and waits for the device."""
    hidden, last = runner._dummy_run(num_tokens, skip_eplb=True)
    # The adapters of a dummy step are laid out for one row of logits per request.
    model: Any = runner.model
    model.compute_logits(last if runner.lora_config else hidden[:num_tokens])
    runner._sync_device()


def kv_bytes_per_token(kv_cache_config: "KVCacheConfig", draft_layers: Collection[str] = ()) -> dict[str, int]:
    """Returns KV cache bytes per token on a rank: `target`, and `draft` for the named layers."""
    found = {"target": 0, "draft": 0}
    for group in kv_cache_config.kv_cache_groups:
        for name, spec in specs_of_layers(group).items():
            found["draft" if name in draft_layers else "target"] += spec.page_size_bytes // spec.block_size
    return found


def specs_of_layers(group: "KVCacheGroupSpec") -> "dict[str, KVCacheSpec]":
    """Returns the KV cache spec of each layer of a group."""
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    shared = group.kv_cache_spec
    own = shared.kv_cache_specs if isinstance(shared, UniformTypeKVCacheSpecs) else {}
    return {name: own.get(name, shared) for name in group.layer_names}


def kv_cache_bytes(runner: "GPUModelRunner") -> int:
    """Returns bytes of the KV cache on this rank."""
    return sum(tensor.size for tensor in runner.kv_cache_config.kv_cache_tensors)


def outcome_of(output: Any) -> "ModelRunnerOutput":
    """Returns a step's `ModelRunnerOutput`, also while its tokens are being copied to the host."""
    for name in ("model_runner_output", "_model_runner_output"):  # of the V2 and of the V1 runner
        output = getattr(output, name, output)
    outcome: ModelRunnerOutput = output
    return outcome


def wrap_drafting(runner: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], *, is_v2: bool) -> None:
    """Puts a function around the method that drafts after a step, if this rank has a drafter.

    Args:
        runner: the runner, with its model.
        wrap: returns the new method for the present one.
        is_v2: whether it is vLLM's V2 runner.
    """
    owner, name = (runner.speculator, "propose") if is_v2 else (runner, "propose_draft_token_ids")
    # A stage before the last one has no drafter.
    if owner is not None:
        setattr(owner, name, wrap(getattr(owner, name)))
