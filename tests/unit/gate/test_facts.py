"""Facts that the start-up gate reads of configurations and, after the KV layout, of runners."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.attention import Attention
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from vllm_spec_plugin.compat.model_facts import Facts, Layer, ModelFacts
from vllm_spec_plugin.compat.read_facts import _layers, read_runner_facts
from vllm_spec_plugin.compat.runner import attention_groups_of_target

SHAPE: dict[str, Any] = {"block_size": 32, "num_kv_heads": 2, "head_size": 64, "dtype": torch.float32}
FULL = FullAttentionSpec(**SHAPE)
KNOWN = Facts(ModelFacts("target", "Llama"), ModelFacts("draft", "Llama"))


def layer(kind=Attention, writes=True):
    made = object.__new__(kind)
    torch.nn.Module.__init__(made)
    made.impl = SimpleNamespace(**({"do_kv_cache_update": print} if writes else {}))
    return made


class OtherAttention(Attention):
    def forward(self, *args, **kwargs):
        raise NotImplementedError


def runner(*specs, table_block_size=32, writes_inside=False, layers=None):
    """One KV cache group per spec: layers `target.N` and, in the first, `draft.0`."""
    groups = [
        SimpleNamespace(kv_cache_spec=spec, layer_names=[f"target.{place}", *(["draft.0"] if place == 0 else [])])
        for place, spec in enumerate(specs)
    ]
    names = {"get_name": staticmethod(lambda: "SOME_ATTN"), "forward_includes_kv_cache_update": writes_inside}
    every = [name for group in groups for name in group.layer_names]
    return SimpleNamespace(
        kv_cache_config=SimpleNamespace(kv_cache_groups=groups),
        input_batch=SimpleNamespace(block_table=[SimpleNamespace(block_size=table_block_size)]),
        attn_groups=[[SimpleNamespace(backend=type("Backend", (), names))] for _ in groups],
        compilation_config=SimpleNamespace(static_forward_context={name: layer() for name in every} | (layers or {})),
    )


def read(*specs, **changes):
    return read_runner_facts(runner(*specs, **changes), KNOWN, {"draft.0"})


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (FULL, Layer.FULL),
        (replace(FULL, sliding_window=64), Layer.SLIDING),
        (replace(FULL, attention_chunk_size=64), Layer.CHUNKED),
        (replace(FULL, non_causal=True), "non-causal attention"),
        (SlidingWindowSpec(**SHAPE, sliding_window=64), Layer.SLIDING),
        (ChunkedLocalAttentionSpec(**SHAPE, attention_chunk_size=64), Layer.CHUNKED),
        (MLAAttentionSpec(**SHAPE), Layer.MLA),
        (MambaSpec(block_size=32, shapes=((2, 2),), dtypes=(torch.float32,)), Layer.RECURRENT),
        (SinkFullAttentionSpec(**SHAPE, sink_len=4), "SinkFullAttentionSpec"),
        (KVCacheSpec(block_size=32), "KVCacheSpec"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_layers_are_told_from_their_kv_cache_specs(spec, kind):
    facts = read(FULL, spec)
    assert facts.target.layers == {Layer.FULL, kind}
    assert facts.draft is not None
    assert facts.draft.layers == {Layer.FULL}
    assert facts.server.num_kv_groups == 2


def test_target_and_draft_are_told_apart_in_one_group():
    window = SlidingWindowSpec(**SHAPE, sliding_window=64)
    specs: dict[str, KVCacheSpec] = {"target.0": FULL, "draft.0": window}
    facts = read(UniformTypeKVCacheSpecs(block_size=32, kv_cache_specs=specs))
    assert facts.target.layers == {Layer.FULL}
    assert facts.draft is not None
    assert facts.draft.layers == {Layer.SLIDING}


def test_an_ordinary_server_has_nothing_in_the_way():
    assert read(FULL) == KNOWN


def test_what_keeps_branches_from_sharing_keys_and_values_is_found():
    assert read(FULL, table_block_size=16).server.split_block_size == 32
    assert read(FULL, writes_inside=True).server.backends_that_write == ("SOME_ATTN",)
    for other in (layer(OtherAttention), layer(writes=False)):
        assert read(FULL, layers={"target.0": other}).server.other_layers == ("target.0",)
    # A draft model's layers need not be written twice.
    assert read(FULL, layers={"draft.0": layer(OtherAttention)}).server.other_layers == ()


def test_steps_of_the_target_leave_out_the_draft_models_attention():
    groups = {
        name: SimpleNamespace(layer_names=names)
        for name, names in {"t": ["a", "b"], "d": ["x"], "both": ["c", "y"]}.items()
    }
    runner: Any = SimpleNamespace(
        attn_groups=[[groups["t"], groups["d"]], [groups["d"]], [groups["d"], groups["both"]]]
    )
    left = attention_groups_of_target(runner, {"x", "y"})
    assert left == [[groups["t"]], [], [groups["d"], groups["both"]]]
    assert runner.attn_groups[0] == [groups["t"], groups["d"]]
    assert attention_groups_of_target(runner, set()) == runner.attn_groups


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
