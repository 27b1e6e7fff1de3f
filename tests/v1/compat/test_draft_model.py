"""The draft's configuration beside the target's, and the layers that a draft model may have."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from tests.engine.tiny import tiny_model
from vllm_spec_plugin.compat.drafter_model import draft_model_config
from vllm_spec_plugin.v1.compat.draft_model import draft_vllm_config, layer_obstacle

ATTENTION: dict[str, Any] = {"block_size": 32, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
MAMBA: dict[str, Any] = {"block_size": 32, "shapes": ((4, 4),), "dtypes": (torch.float32,)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def target_config(models, name):
    args = EngineArgs(
        model=str(tiny_model(name, models)), skip_tokenizer_init=True, dtype="float32", max_model_len=512, block_size=32
    )
    return args.create_engine_config()


def draft_config(target, models, name, **weights):
    model = str(tiny_model(name, models))
    given = {"model": model, "dtype": None, "quantization": None} | weights
    draft = draft_model_config(target.model_config, **given)
    return draft_vllm_config(target, draft, model_config=draft, quant_config=None)


def settings(config):
    """Every setting of every section, as text."""
    sections = {name: section for name, section in vars(config).items() if hasattr(section, "__dict__")}
    return {f"{name}.{key}": repr(value) for name, section in sections.items() for key, value in vars(section).items()}


@pytest.mark.parametrize(("target", "draft"), [("llama", "qwen3_moe"), ("qwen3_moe", "llama"), ("llama", "gpt_oss")])
def test_the_drafts_configuration_leaves_the_targets_as_it_is(models, target, draft):
    config = target_config(models, target)
    before = settings(config)
    draft_config(config, models, draft)
    assert settings(config) == before


# Layers of these tests do not look at it.
ANY_CONFIG: Any = None


def test_what_has_no_key_is_the_targets_or_vllms_choice(models):
    config = target_config(models, "llama")
    config.model_config.trust_remote_code = True
    config.parallel_config.tensor_parallel_size = 2
    config.cache_config.cache_dtype = "fp8_e4m3"
    config.load_config.load_format = "dummy"
    config.attention_config.backend = AttentionBackendEnum.TRITON_ATTN
    draft = draft_config(config, models, "llama")
    assert draft.model_config.trust_remote_code
    assert draft.parallel_config.tensor_parallel_size == 2
    assert draft.cache_config.cache_dtype == "fp8_e4m3"
    assert draft.load_config.load_format == "dummy"
    assert draft.attention_config.backend is None


def layer(spec, **attributes):
    return SimpleNamespace(get_kv_cache_spec=lambda config: spec, kv_sharing_target_layer_name=None, **attributes)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SlidingWindowSpec(**ATTENTION, sliding_window=64), "keeps its state as SlidingWindowSpec"),
        (ChunkedLocalAttentionSpec(**ATTENTION, attention_chunk_size=64), "keeps its state as ChunkedLocal"),
        (MLAAttentionSpec(**ATTENTION), "keeps its state as MLAAttentionSpec"),
        (MambaSpec(**MAMBA), "keeps its state as MambaSpec"),
        (FullAttentionSpec(**ATTENTION, non_causal=True), "does not attend causally"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_that_keep_anything_but_all_keys_and_values_are_refused(spec, reason):
    assert layer_obstacle(layer(spec), ANY_CONFIG).startswith(reason)


def test_layers_with_keys_and_values_of_others_are_refused():
    shared = layer(FullAttentionSpec(**ATTENTION))
    assert layer_obstacle(shared, ANY_CONFIG) == ""
    shared.kv_sharing_target_layer_name = "model.layers.0"
    assert layer_obstacle(shared, ANY_CONFIG) == "uses the keys and values of another layer"
