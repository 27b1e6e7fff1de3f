"""Configures a drafter's model, and reloads its weights."""

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from vllm_spec_plugin.compat.types import ModelConfig, VllmConfig


def draft_model_config(
    target: "ModelConfig",
    *,
    model: str,
    dtype: str | None,
    quantization: str | None,
    revision: str | None = None,
    code_revision: str | None = None,
    max_model_len: int | None = None,
    architecture: str | None = None,
) -> "ModelConfig":
    """Creates vLLM's `ModelConfig` of a draft model.

    Args:
        target: the target's `ModelConfig`.
        model: folder or hub name of the draft model.
        dtype: data type of the weights; None is the target's, "auto" the checkpoint's.
        quantization: vLLM's name of the quantization; None is the checkpoint's.
        revision: branch, tag or commit on the hub; None is the default branch.
        code_revision: branch, tag or commit of the model's code; None is the default branch.
        max_model_len: maximum context in tokens, at most the target's; None is what the model's config says.
        architecture: class of the model in vLLM; None is the checkpoint's.

    Raises:
        ValueError: vLLM cannot run the model so.
    """
    from vllm.config import ModelConfig

    # vLLM checks the values; other types than it declares come from a plugin.yaml.
    given: dict[str, Any] = {"dtype": dtype or target.dtype}
    if max_model_len is not None:
        given["max_model_len"] = max_model_len
    draft = ModelConfig(
        model=model,
        revision=revision,
        code_revision=code_revision,
        runner="draft",
        tokenizer=target.tokenizer,
        tokenizer_mode=target.tokenizer_mode,
        tokenizer_revision=target.tokenizer_revision,
        trust_remote_code=target.trust_remote_code,
        seed=target.seed,
        quantization=quantization,
        enforce_eager=target.enforce_eager,
        config_format=target.config_format,
        hf_overrides={"architectures": [architecture]} if architecture else {},
        **given,
    )
    draft.max_model_len = min(draft.max_model_len, target.max_model_len)
    return draft


def reload_weights(vllm_config: "VllmConfig", model_config: "ModelConfig", model: "torch.nn.Module") -> None:
    """Loads a drafter's weights again, into the memory that they have.

    Args:
        vllm_config: the target's.
        model_config: the drafter's.
        model: the drafter.
    """
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload import inplace

    own = copy.copy(vllm_config)
    own.model_config = model_config
    with set_current_vllm_config(vllm_config):
        inplace.reload_weights(own, model, weights_iterator=None, weights_path=None, is_checkpoint_format=True)
