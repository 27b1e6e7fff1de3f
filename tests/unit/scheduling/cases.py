"""Small KV caches and requests of vLLM's own types."""

import copy
import functools
from pathlib import Path
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

import vllm_spec_plugin
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.models import model_path

BLOCK_SIZE = 4
MAX_MODEL_LEN = 48
MAX_NUM_SEQS = 4

FULL = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
# A sliding window's group has blocks of its own in the same pool, null ones where the window went past.
WINDOW = SlidingWindowSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=10)

# A draft model's group may have larger blocks than the target's, so that a block of each takes as many bytes.
WIDE = FullAttentionSpec(block_size=2 * BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)


def kv_cache_config(num_blocks: int, *specs: AttentionSpec) -> KVCacheConfig:
    """A pool of `num_blocks` blocks, the null block among them, for one KV group per spec."""
    groups = [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def engine_config(path: str | Path, token_budget: int) -> Any:
    """A copy of vLLM's configuration for the bundled model and a plugin.yaml, as `vllm serve` would make it."""
    key = Path(path).read_text(), token_budget
    if key not in _CONFIGS:
        _CONFIGS[key] = _created(path, token_budget)
    config = copy.copy(_CONFIGS[key])
    config.scheduler_config, config.cache_config = copy.copy(config.scheduler_config), copy.copy(config.cache_config)
    config.additional_config = {KEY: {**config.additional_config[KEY], "source": str(path)}}
    return config


# By the file's text and the token budget: making one takes longer than most tests.
_CONFIGS: dict[tuple[str, int], Any] = {}


def _created(path: str | Path, token_budget: int) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=str(model_path("target")),
        dtype="float32",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=token_budget,
        enable_prefix_caching=True,
        speculative_config=vllm_spec_plugin.speculative_config(path),
    ).create_engine_config()


def scheduler_over(
    scheduler_cls: type, vllm_config: Any, num_blocks: int, *specs: AttentionSpec, block_size: int = BLOCK_SIZE
) -> Any:
    """A scheduler, as the engine core makes it, over a pool of `num_blocks` blocks."""
    from vllm.v1.structured_output import StructuredOutputManager

    vllm_config.cache_config.num_gpu_blocks = num_blocks
    return scheduler_cls(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config(num_blocks, *specs),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=block_size,
        hash_block_size=block_size,
        log_stats=True,
    )


@functools.cache
def _hasher():
    init_none_hash(sha256)
    return get_request_block_hasher(BLOCK_SIZE, sha256)


def request(
    request_id: str, prompt: list[int], max_tokens: int = MAX_MODEL_LEN, extra_args: dict[str, Any] | None = None
) -> Request:
    """A request whose blocks the prefix cache can find."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, extra_args=extra_args)
    return Request(request_id, list(prompt), params, None, block_hasher=_hasher())


def prompt(family: int, num_tokens: int) -> list[int]:
    """Tokens that all prompts of a family begin with."""
    return [100 * family + i for i in range(num_tokens)]
