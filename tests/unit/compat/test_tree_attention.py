"""Which servers verify trees, and that what branches share is written for each of them."""

from types import SimpleNamespace

import pytest
import torch
from vllm.config import CUDAGraphMode
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from vllm_spec_plugin.compat.tree_attention import TreeAttention

SHAPE = {"block_size": 32, "num_kv_heads": 2, "head_size": 64, "dtype": torch.float32}


class Impl:
    """Notes what is written where."""

    def __init__(self):
        self.written = []

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        self.written.append((key.tolist(), value.tolist(), slot_mapping.tolist()))


def backend(inside=False):
    names = {"get_name": staticmethod(lambda: "SOME_ATTN"), "forward_includes_kv_cache_update": inside}
    return type("Backend", (), names)


def runner(**changes):
    groups = changes.pop("groups", [FullAttentionSpec(**SHAPE)])
    parallel = {"pipeline_parallel_size": 1, "decode_context_parallel_size": 1} | changes.pop("parallel", {})
    return SimpleNamespace(
        kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in groups]),
        input_batch=SimpleNamespace(block_table=[SimpleNamespace(block_size=changes.pop("table_block_size", 32))]),
        attn_groups=[[SimpleNamespace(backend=changes.pop("backend", backend()))]],
        uses_mrope=changes.pop("uses_mrope", False),
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(**parallel), kv_transfer_config=changes.pop("kv_transfer_config", None)
        ),
        compilation_config=SimpleNamespace(
            cudagraph_mode=changes.pop("cudagraph_mode", CUDAGraphMode.NONE),
            static_forward_context={name: SimpleNamespace(impl=Impl()) for name in ("target", "draft")},
        ),
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"groups": [FullAttentionSpec(**SHAPE)] * 2}, "the model has 2 KV cache groups, not one"),
        ({"groups": [SlidingWindowSpec(**SHAPE, sliding_window=64)]}, "not all of the model's layers are full"),
        ({"table_block_size": 16}, "splits blocks of 32 tokens; choose its size with --block-size"),
        ({"backend": backend(inside=True)}, "SOME_ATTN writes keys and values while it attends"),
        ({"uses_mrope": True}, "counts positions in several dimensions"),
        ({"parallel": {"pipeline_parallel_size": 2}}, "--pipeline-parallel-size is above 1"),
        ({"parallel": {"decode_context_parallel_size": 2}}, "--decode-context-parallel-size is above 1"),
        ({"kv_transfer_config": object()}, "a KV connector keeps block tables of its own"),
        ({"cudagraph_mode": CUDAGraphMode.FULL}, "full CUDA graphs have their sequences built in"),
        ({"cudagraph_mode": CUDAGraphMode.FULL_AND_PIECEWISE}, "start with cudagraph_mode PIECEWISE"),
    ],
)
def test_what_does_not_go_with_trees_is_refused_with_the_reason(changes, reason):
    with pytest.raises(ValueError, match=r"trees of drafts can't be verified here: .*; draft chains instead") as caught:
        TreeAttention(runner(**changes), {"target"})
    assert reason in str(caught.value)


@pytest.mark.parametrize("mode", [None, CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE])
def test_everything_else_is_taken(mode):
    assert TreeAttention(runner(cudagraph_mode=mode), {"target"}).block_size == 32


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
