"""Checks that the given models go together, before an engine starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.draft_model.compatibility import ModelSource, check_name, check_pair
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.engine_options import speculative_json
from vllm_spec_tools.engines.memory import weight_bytes
from vllm_spec_tools.planner.candidates import (
    DRAFT_MODEL,
    EAGLE3,
    GRAMMAR,
    GRAMMAR_FIRST,
    MEDUSA,
    NONE,
    PREDICTION,
    SUFFIX,
    TREE,
    Heads,
    native_name,
)

_EXAMPLE = '{"method": "eagle3", "model": "HEAD"}'


def read_heads(model: str) -> Heads:
    """Reads the config of a folder of Medusa heads.

    Raises:
        ConfigError: it has none.
    """
    check_heads(None, model, None, "--medusa")
    return Heads(model, read_heads_config(model))


def read_natives(given: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Returns the speculative configs of vLLM's own drafters, with folders absolute.

    Raises:
        UserError: one is no JSON object with a method, or has a key that the plugin's draft length stands for.
    """
    natives: list[dict[str, Any]] = []
    for text in given:
        config = speculative_json(f"--vllm {text}", text, _EXAMPLE)
        parsed = parse_config({"proposer": {"method": NATIVE, "config": config}}, f"--vllm {text}").proposer
        assert isinstance(parsed, NativeConfig)
        own = parsed.resolved(Path.cwd()).config
        if own["method"] in {config["method"] for config in natives}:
            raise UserError(f"--vllm {text}: {own['method']} was given before; allowed: each method once")
        natives.append(own)
    return tuple(natives)


def check_models(model: str, draft: str | None, heads: Heads | None, eagle3: str | None = None) -> list[str]:
    """Compares the models' sizes and tokens.

    Returns:
        Warnings.

    Raises:
        ConfigError: one cannot be read, or does not fit.
    """
    target, warnings = ModelSource(model), []
    check_name(model, "--model")
    if draft is not None:
        warnings += check_pair(target, ModelSource(draft), 1, None, "--draft")
    if heads is not None:
        warnings += check_heads(target, heads.model, None, "--medusa")
    if eagle3 is not None:
        warnings += check_head(Target(target), eagle3, "--eagle3")
    return warnings


TARGET = "target"
# Of vLLM's methods.
_WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix")


@dataclass(frozen=True)
class Memory:
    """Memory of a model.

    Attributes:
        weights: bytes; None is not known.
        kv_per_token: bytes of the KV cache for each token of a text.
    """

    weights: int | None
    kv_per_token: int


def memory_of(
    model: str,
    draft: str | None,
    heads: Heads | None,
    facts: Mapping[str, Mapping[str, Any]],
    eagle3: str | None = None,
    natives: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Memory]:
    """Computes the memory of the target, and of each candidate beside it, by name.

    Args:
        natives: vLLM's own drafters, as in `chain_engines`. What one without weights of its own takes is not known.
    """
    dtype = str(facts[NONE]["dtype"])
    kv = facts[NONE]["kv_bytes_per_token"]
    found = {TARGET: Memory(weight_bytes(model, dtype), kv)}
    found[SUFFIX] = Memory(0, 0)
    if any(PREDICTION in engine for engine in facts):  # named after its proposers
        found[PREDICTION] = found[CASCADE] = Memory(0, 0)
    if GRAMMAR_FIRST in facts:
        found[GRAMMAR] = found[GRAMMAR_FIRST] = Memory(0, 0)
    if draft is not None:
        most = next(facts[name]["kv_bytes_per_token"] for name in facts if name.endswith(f" and {DRAFT_MODEL}"))
        found[DRAFT_MODEL] = found[CASCADE] = Memory(weight_bytes(draft, dtype), most - kv)
    if heads is not None:
        found[MEDUSA] = found[TREE] = Memory(weight_bytes(heads.model, dtype), 0)
    if eagle3 is not None:
        found[EAGLE3] = Memory(weight_bytes(eagle3, dtype), facts[EAGLE3]["kv_bytes_per_token"] - kv)
    for config in natives:
        name, weights = native_name(config), config.get("model")
        own = weight_bytes(weights, dtype) if weights else 0 if config["method"] in _WITHOUT_WEIGHTS else None
        found[name] = Memory(own, facts[name]["kv_bytes_per_token"] - kv)
    return found
