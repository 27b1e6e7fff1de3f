"""What the weights of models take, from their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_tools.memory import item_bytes, weight_bytes
from vllm_spec_tools.planner.candidates import (
    DRAFT_MODEL,
    EAGLE3,
    MEDUSA,
    PREDICTION,
    SUFFIX,
    TREE,
    Heads,
    native_name,
)
from vllm_spec_tools.planner.samples import NONE

TARGET = "target"
# Of vLLM's methods.
_WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix")


@dataclass(frozen=True)
class Memory:
    """What something takes.

    Attributes:
        weights: bytes; None is not known.
        kv_per_token: bytes of the KV cache for each token of a text.
    """

    weights: int | None
    kv_per_token: int


def heads_bytes(heads: Heads, dtype: str) -> int:
    """Bytes of Medusa heads, all of them."""
    config, hidden = heads.config, heads.config.hidden_size
    each = config.num_layers * hidden * (hidden + 1) + config.vocab_size * hidden
    return int(config.num_heads * each * item_bytes(dtype))


def memory_of(
    model: str,
    draft: str | None,
    heads: Heads | None,
    facts: Mapping[str, Mapping[str, Any]],
    eagle3: str | None = None,
    natives: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Memory]:
    """What the target takes, and each candidate beside it, by name.

    Args:
        draft: the draft model; None is without.
        heads: Medusa heads; None is without.
        facts: per engine, see `Session.facts`; `samples.NONE` among them.
        eagle3: an EAGLE-3 head; None is without.
        natives: vLLM's own drafters, as in `chain_engines`. What one without weights of its own takes is not known.
    """
    dtype = str(facts[NONE]["dtype"])
    kv = facts[NONE]["kv_bytes_per_token"]
    found = {TARGET: Memory(weight_bytes(model, dtype), kv)}
    found[SUFFIX] = Memory(0, 0)
    if any(PREDICTION in engine for engine in facts):  # named after its proposers
        found[PREDICTION] = found[CASCADE] = Memory(0, 0)
    if draft is not None:
        most = next(facts[name]["kv_bytes_per_token"] for name in facts if name.endswith(f" and {DRAFT_MODEL}"))
        found[DRAFT_MODEL] = found[CASCADE] = Memory(weight_bytes(draft, dtype), most - kv)
    if heads is not None:
        found[MEDUSA] = found[TREE] = Memory(heads_bytes(heads, dtype), 0)
    if eagle3 is not None:
        found[EAGLE3] = Memory(weight_bytes(eagle3, dtype), facts[EAGLE3]["kv_bytes_per_token"] - kv)
    for config in natives:
        name, weights = native_name(config), config.get("model")
        own = weight_bytes(weights, dtype) if weights else 0 if config["method"] in _WITHOUT_WEIGHTS else None
        found[name] = Memory(own, facts[name]["kv_bytes_per_token"] - kv)
    return found
