"""Layer kinds of models that vLLM itself knows nothing of, and runs with transformers' code."""

from types import SimpleNamespace

import pytest

from vllm_spec_plugin.compat.model_facts import Layer
from vllm_spec_plugin.compat.read_facts import _layers


def model(**text):
    return SimpleNamespace(
        hf_text_config=SimpleNamespace(**text),
        use_mla=False,
        is_hybrid=False,
        is_attention_free=False,
        has_inner_state=False,
        rswa_window=None,
        disable_sliding_window=False,
        get_sliding_window=lambda: text.get("sliding_window"),
    )


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ({}, {Layer.FULL}),
        ({"sliding_window": 64}, {Layer.SLIDING}),
        ({"layer_types": ["full_attention"], "sliding_window": 64}, {Layer.FULL}),
        ({"layers_block_type": ["recurrent", "attention"]}, {Layer.RECURRENT, Layer.FULL}),
        ({"layer_types": ["full_attention", "ring_attention"]}, {Layer.FULL, "ring_attention"}),
        ({"attention_chunk_size": 64}, {Layer.FULL, Layer.CHUNKED}),
    ],
)
def test_layer_kinds_are_told_from_the_config(text, layers):
    assert _layers(model(**text)) == layers
