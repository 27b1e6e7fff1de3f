"""Memory that engines take, computed from models' files before they start."""

import contextlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource, read_facts
from vllm_spec_plugin.schema.errors import UserError

# vLLM's default share of a GPU's memory, and the share of all engines that run side by side.
ALONE, SIDE_BY_SIDE = 0.92, 0.9
# At least, of a process besides weights and KV cache: code, activations, buffers of kernels.
OVERHEAD = 0.8e9
_GIB = 1024**3
_BYTES = {"float64": 8, "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
# In files of safetensors; what is no number with a point stays as it is.
_FLOATS = {"F64", "F32", "F16", "BF16"}
_OTHERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class Need:
    """The least memory of an engine, in bytes of all its devices together."""

    weights: float
    kv: float
    tokens: int

    def on_each(self, devices: int) -> float:
        """Returns the bytes on each of several devices."""
        return (self.weights + self.kv) / devices + OVERHEAD


def weight_bytes(model: str, dtype: str, quantization: str | None = None) -> int | None:
    """Bytes of a model's weights, as its files have them; None where it has none in safetensors.

    Args:
        model: a folder, or a hub name; of one that was not downloaded, the hub is asked.
        dtype: that they are served in, as torch calls it; quantised weights stay as they are.
        quantization: how vLLM quantises floating-point weights while it loads them; None is not at all.
    """
    size = {None: item_bytes(dtype), "fp8": 1.0}.get(quantization, 0.5)
    counts = _counts(model)
    if counts is None:
        return None
    return int(sum(count * (size if kind in _FLOATS else _OTHERS.get(kind, 1)) for kind, count in counts.items()))


def item_bytes(dtype: str) -> float:
    """Returns the bytes of a number of a data type, as torch calls it; 2 for `auto`."""
    return _BYTES.get(dtype.removeprefix("torch."), 2)


def text_config(model: str) -> Any:
    """Returns the config of a model's text part; None if it can't be read, as vLLM will say."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config()
    except Exception:  # whatever a config from anywhere makes of the library that reads it
        return None


def context_of(model: str) -> int | None:
    """Returns the longest text that a model's config allows; None if it says nothing, or can't be read."""
    try:
        return read_facts(ModelSource(model)).context
    except UnreadableError:  # vLLM serves models that transformers does not know
        return None


def kv_bytes(config: Any, tokens: int, item: float) -> float:
    """Returns the bytes of the KV cache of one text."""
    layers = getattr(config, "num_hidden_layers", None)
    heads = getattr(config, "num_attention_heads", None)
    if not layers or not heads:
        return 0.0
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * layers
    window = min(getattr(config, "sliding_window", None) or tokens, tokens)
    kept = sum({"full_attention": tokens, "sliding_attention": window}.get(kind, 0) for kind in kinds)
    if rank := getattr(config, "kv_lora_rank", None):
        return float(kept * (rank + getattr(config, "qk_rope_head_dim", 0)) * item)
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return float(kept * 2 * (getattr(config, "num_key_value_heads", None) or heads) * size * item)


def need_of(target: str, drafts: Sequence[str], options: Mapping[str, Any], on_cpu: bool) -> Need | None:
    """Computes what an engine needs at least; None where the target's files do not tell."""
    dtype = str(options.get("dtype", "auto"))
    weights = weight_bytes(target, dtype, options.get("quantization"))
    if weights is None:
        return None
    weights += sum(weight_bytes(draft, dtype) or 0 for draft in drafts)
    given = options.get("kv_cache_memory_bytes")
    if on_cpu and (given or "gpu_memory_utilization" not in options):
        # See `serving.cpu_environment`.
        return Need(weights, float(given or int(os.environ.get("VLLM_CPU_KVCACHE_SPACE") or 1) * _GIB), 0)
    config = text_config(target)
    context = options.get("max_model_len") or getattr(config, "max_position_embeddings", None) or 0
    tokens = max(context, 0)  # -1 is what fits
    item = 1.0 if "8" in str(options.get("kv_cache_dtype", "")) else item_bytes(dtype)
    kv = kv_bytes(config, tokens, item) + sum(kv_bytes(text_config(draft), tokens, item) for draft in drafts)
    return Need(weights, float(given or kv), tokens)


def beside_others(kv_bytes: int) -> dict[str, Any]:
    """Returns arguments of an engine that starts on a GPU while others start there, with a KV cache of `kv_bytes`.

    While vLLM chooses a size, it counts what other processes allocate as its own. With a given size it still requires
    that the share `gpu_memory_utilization` of the device is free.
    """
    return {"kv_cache_memory_bytes": kv_bytes, "gpu_memory_utilization": 0.01}


def check_memory(
    needs: Mapping[str, Need | None],
    options: Mapping[str, Any],
    device: tuple[str, int],
    *,
    one_at_a_time: bool,
    fewer: str = "fewer --arm",
) -> float | None:
    """Refuses engines that do not fit; returns the share of each device's memory for each engine.

    None leaves it to vLLM: one engine at a time, or an option.

    Args:
        needs: of the engines, by name; None is not known, and fits.
        device: see `compat.engine_args.device_memory`.
        fewer: how to have fewer engines, for the message; empty if there is no way.

    Raises:
        UserError: one needs more than it gets.
    """
    word, memory = device
    at_once = 1 if one_at_a_time else len(needs)
    ranks = math.prod(int(options.get(f"{kind}_parallel_size") or 1) for kind in ("tensor", "pipeline"))
    # Ranks on a CPU share its memory.
    devices = 1 if word == "CPU" else ranks
    given = options.get("gpu_memory_utilization")
    share = float(given or (ALONE if at_once == 1 else SIDE_BY_SIDE / at_once))
    wanted = None if given or at_once == 1 else share
    known = {name: need for name, need in needs.items() if need is not None}
    if not known:
        return wanted
    each = {name: need.on_each(devices) for name, need in known.items()}
    largest = max(each, key=lambda name: each[name])
    if word == "CPU" and (not given or options.get("kv_cache_memory_bytes")):
        # Each takes what it needs.
        room = memory / at_once
        fits = (each[largest] if at_once == 1 else sum(each.values())) <= memory
    else:
        room = share * memory
        fits = each[largest] <= room and share * at_once <= 1
    if fits:
        return wanted
    need, is_alone_too_large = known[largest], each[largest] > memory * ALONE
    ways = []
    if at_once > 1:
        ways += [] if is_alone_too_large else ["--one-at-a-time"]
        ways += [*filter(None, [fewer]), *(["a lower --gpu-memory-utilization"] if given else [])]
    if is_alone_too_large:
        fitting = [] if word == "CPU" else _fitting(need, devices, memory * ALONE)
        ways += fitting or ["a smaller model or KV cache, or more memory"]
    what, one = (f"{at_once} engines side by side get", "each ") if at_once > 1 else ("an engine gets", "")
    kv = f"KV cache of {need.tokens:,} tokens" if need.tokens else "KV cache"
    parts = f"{_gb(need.weights / devices)} weights, {_gb(need.kv / devices)} {kv}, {_gb(OVERHEAD)} besides"
    raise UserError(
        f"memory: {largest} needs {_gb(each[largest])}{' of each GPU' if devices > 1 else ''}: {parts}; {what} "
        f"{_gb(room)} {one}of the {word}'s {_gb(memory)}; allowed: {', '.join(ways)}"
    )


def _fitting(need: Need, devices: int, memory: float) -> list[str]:
    """Options with which an engine fits by itself."""
    ways = []
    left = (memory - OVERHEAD) * devices - need.weights
    if need.tokens and left > 0 and (tokens := int(need.tokens * left / need.kv) // 1024 * 1024):
        ways.append(f"-- --max-model-len {tokens}")
    if more := [number for number in (2, 4, 8, 16) if number > devices and need.on_each(number) <= memory]:
        ways.append(f"-- --tensor-parallel-size {more[0]}")
    return ways


def _gb(number: float) -> str:
    return f"{number / 1e9:.1f} GB"


def _counts(model: str) -> dict[str, int] | None:
    """Numbers of a model's weights by data type in its files; None where that is unknown."""
    from huggingface_hub import get_safetensors_metadata, parse_local_safetensors_file_metadata, snapshot_download

    folder = Path(model)
    if not folder.is_dir():
        with contextlib.suppress(OSError, ValueError):  # it was not downloaded
            folder = Path(snapshot_download(model, local_files_only=True))
    counts = Counter[str]()
    for path in folder.glob("*.safetensors"):
        counts.update(parse_local_safetensors_file_metadata(path).parameter_count)
    if not counts and not Path(model).is_dir():
        with contextlib.suppress(Exception):  # no network, no such name, no such files
            counts.update(get_safetensors_metadata(model).parameter_count)
    return dict(counts) or None
