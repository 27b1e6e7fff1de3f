"""What the weights of models take, from their files."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_plugin.tools.planner.candidates import (
    DRAFT_MODEL,
    EAGLE3,
    MEDUSA,
    PREDICTION,
    SUFFIX,
    TREE,
    Heads,
)
from vllm_spec_plugin.tools.planner.samples import NONE

TARGET = "target"

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
# In files of safetensors; what is no number with a point stays as it is.
_FLOATS = {"F64", "F32", "F16", "BF16"}
_OTHERS = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class Memory:
    """What something takes.

    Attributes:
        weights: bytes; None is not known.
        kv_per_token: bytes of the KV cache for each token of a text.
    """

    weights: int | None
    kv_per_token: int


def weight_bytes(model: str, dtype: str) -> int | None:
    """Bytes of a model's weights, as its files have them; None where it has none in safetensors.

    Args:
        model: a folder, or a hub name that was downloaded already.
        dtype: that they are served in, as torch calls it; quantised weights stay as they are.
    """
    from safetensors import safe_open

    folder = _folder(model)
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    size = _item_bytes(dtype)
    total = 0
    for path in files:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, it is no mapping
                tensor = tensors.get_slice(name)
                kind = tensor.get_dtype()
                total += math.prod(tensor.get_shape()) * (size if kind in _FLOATS else _OTHERS.get(kind, 1))
    return total if files else None


def heads_bytes(heads: Heads, dtype: str) -> int:
    """Bytes of Medusa heads, all of them."""
    config, hidden = heads.config, heads.config.hidden_size
    each = config.num_layers * hidden * (hidden + 1) + config.vocab_size * hidden
    return config.num_heads * each * _item_bytes(dtype)


def memory_of(
    model: str,
    draft: str | None,
    heads: Heads | None,
    facts: Mapping[str, Mapping[str, Any]],
    eagle3: str | None = None,
) -> dict[str, Memory]:
    """What the target takes, and each candidate beside it, by name.

    Args:
        model: the target.
        draft: the draft model; None is without.
        heads: Medusa heads; None is without.
        facts: per engine, see `Session.facts`; `samples.NONE` among them.
        eagle3: an EAGLE-3 head; None is without.
    """
    dtype = str(facts[NONE]["dtype"])
    kv = facts[NONE]["kv_bytes_per_token"]["target"]
    found = {TARGET: Memory(weight_bytes(model, dtype), kv)}
    found[SUFFIX] = Memory(0, 0)
    if any(PREDICTION in engine for engine in facts):  # named after its proposers
        found[PREDICTION] = found[CASCADE] = Memory(0, 0)
    if draft is not None:
        kv = max(engine["kv_bytes_per_token"]["draft"] for name, engine in facts.items() if name != EAGLE3)
        found[DRAFT_MODEL] = found[CASCADE] = Memory(weight_bytes(draft, dtype), kv)
    if heads is not None:
        found[MEDUSA] = found[TREE] = Memory(heads_bytes(heads, dtype), 0)
    if eagle3 is not None:
        found[EAGLE3] = Memory(weight_bytes(eagle3, dtype), facts[EAGLE3]["kv_bytes_per_token"]["draft"])
    return found


def _item_bytes(dtype: str) -> int:
    return _BYTES.get(dtype.removeprefix("torch."), 2)


def _folder(model: str) -> Path | None:
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):
        return None
