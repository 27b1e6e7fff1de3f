"""Whether the models that are given go together, found out before an engine starts."""

from vllm_spec_plugin.proposers.draft_model.pair import ModelSource, check_name, check_pair
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.tools.planner.candidates import Heads


def read_heads(model: str) -> Heads:
    """What a folder of Medusa heads says of them.

    Raises:
        ConfigError: it has none.
    """
    check_heads(None, model, None, "--medusa")
    return Heads(model, read_heads_config(model))


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
