"""Whether the models that are given go together, found out before an engine starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.draft_model.pair import ModelSource, check_name, check_pair
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.input import speculative_json
from vllm_spec_tools.planner.candidates import Heads

_EXAMPLE = '{"method": "eagle3", "model": "HEAD"}'


def read_heads(model: str) -> Heads:
    """What a folder of Medusa heads says of them.

    Raises:
        ConfigError: it has none.
    """
    check_heads(None, model, None, "--medusa")
    return Heads(model, read_heads_config(model))


def read_natives(given: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The speculative configs of vLLM's own drafters, with folders absolute.

    Args:
        given: in JSON.

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

    Args:
        model: that is served, a folder or a hub name.
        draft: a draft model; None is without.
        heads: Medusa heads; None is without.
        eagle3: an EAGLE-3 head; None is without.

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
