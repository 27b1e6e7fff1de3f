"""Tests that shared entries of branches are written for each of them."""

from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec

from vllm_spec_plugin.v1.compat.tree_attention import TreeAttention

SHAPE: dict[str, Any] = {"block_size": 32, "num_kv_heads": 2, "head_size": 64, "dtype": torch.float32}


class Impl:
    """Notes what is written where."""

    def __init__(self):
        self.written = []

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        self.written.append((key.tolist(), value.tolist(), slot_mapping.tolist()))


def runner():
    spec = FullAttentionSpec(**SHAPE)
    return SimpleNamespace(
        kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)]),
        compilation_config=SimpleNamespace(
            static_forward_context={name: SimpleNamespace(impl=Impl()) for name in ("target", "draft")}
        ),
    )


def test_shared_tokens_are_written_to_their_further_slots_too_on_the_targets_layers_only():
    served = runner()
    attention = TreeAttention(served, {"target"})
    layers = served.compilation_config.static_forward_context
    key, value = torch.arange(4.0)[:, None], torch.arange(4.0)[:, None] + 10

    def write(name):
        layers[name].impl.do_kv_cache_update(layers[name], key, value, None, torch.arange(4))
        written, layers[name].impl.written = layers[name].impl.written, []
        return written

    plain = ([[0.0], [1.0], [2.0], [3.0]], [[10.0], [11.0], [12.0], [13.0]], [0, 1, 2, 3])
    assert write("target") == [plain]
    attention.share(torch.tensor([2, 0, 2]), torch.tensor([70, 71, 72]))
    assert write("target") == [plain, ([[2.0], [0.0], [2.0]], [[12.0], [10.0], [12.0]], [70, 71, 72])]
    assert write("draft") == [plain]
    attention.stop_sharing()
    assert write("target") == [plain]
    attention.share(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    assert write("target") == [plain]
