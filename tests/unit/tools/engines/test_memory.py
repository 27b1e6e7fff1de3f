"""Tests the memory of engines, and whether they fit; sizes are of the bundled models and of published configs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.memory import Need, check_memory, kv_bytes, need_of, weight_bytes

DTYPE = "torch.float32"
H100 = "GPU", 80_000_000_000


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has one model: ten weights."""
    import huggingface_hub

    def metadata(name: str) -> Any:
        if name != "some/model":
            raise OSError("no such model")
        return SimpleNamespace(parameter_count={"BF16": 8, "F8_E4M3": 2})

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", metadata)


def test_weights_are_counted_in_the_served_format() -> None:
    target = str(model_path("target"))
    assert weight_bytes(target, DTYPE) == pytest.approx(4 * 3.67e6, rel=0.01)
    assert weight_bytes(target, "torch.bfloat16") == pytest.approx(2 * 3.67e6, rel=0.01)


def test_a_folder_without_safetensors_is_not_known(tmp_path: Path) -> None:
    assert weight_bytes(str(tmp_path), DTYPE) is None
    assert weight_bytes("nobody/has-this-here", DTYPE) is None


def test_of_a_model_that_was_not_downloaded_the_hub_is_asked() -> None:
    assert weight_bytes("some/model", "auto") == 8 * 2 + 2


@pytest.mark.parametrize(("quantization", "size"), [("fp8", 1), ("bitsandbytes", 0.5)])
def test_weights_that_vllm_quantises_count_as_such(quantization: str, size: float) -> None:
    assert weight_bytes(str(model_path("target")), "auto", quantization) == pytest.approx(size * 3.67e6, rel=0.01)


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, hidden_size=512, **values)


def test_a_text_takes_keys_and_values_of_each_layer() -> None:
    assert kv_bytes(config(), 100, 2) == 100 * 4 * 2 * 2 * 64 * 2
    assert kv_bytes(config(head_dim=128), 100, 1) == 100 * 4 * 2 * 2 * 128
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    assert kv_bytes(config(layer_types=kinds, sliding_window=10), 100, 2) == (3 * 10 + 100) * 2 * 2 * 64 * 2
    assert kv_bytes(config(kv_lora_rank=512, qk_rope_head_dim=64), 100, 2) == 100 * 4 * 576 * 2
    assert kv_bytes(None, 100, 2) == 0


def test_an_engine_needs_the_weights_of_all_its_models_and_a_text_of_the_longest_context() -> None:
    target, draft = str(model_path("target")), str(model_path("draft"))
    alone, both = (need_of(target, drafts, {"max_model_len": 64}, False) for drafts in ([], [draft]))
    assert alone is not None
    assert both is not None
    assert alone.weights == pytest.approx(2 * 3.67e6, rel=0.01)
    assert both.weights - alone.weights == weight_bytes(draft, "auto")
    assert (alone.tokens, both.kv > alone.kv > 0) == (64, True)
    longer = need_of(target, [], {"max_model_len": 128}, False)
    assert longer is not None
    assert longer.kv == 2 * alone.kv


def test_on_a_cpu_the_cache_has_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(model_path("target"))
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    for options, kv in (({}, 2**30), ({"kv_cache_memory_bytes": 5}, 5)):
        found = need_of(target, [], {"dtype": "float32", **options}, True)
        assert found is not None
        assert (found.kv, found.tokens) == (kv, 0)


def test_a_model_that_is_not_known_is_left_to_vllm() -> None:
    assert need_of("nobody/has-this-here", [], {}, False) is None
    assert check_memory({"none": None}, {}, H100, one_at_a_time=True) is None


SMALL, LARGE = Need(16e9, 2e9, 8192), Need(64e9, 10e9, 40960)


def test_engines_that_fit_share_the_device() -> None:
    assert check_memory({"none": SMALL, "optimal": SMALL}, {}, H100, one_at_a_time=False) == 0.45
    for options, one_at_a_time in (({}, True), ({"gpu_memory_utilization": 0.4}, False)):
        assert check_memory({"none": SMALL, "optimal": SMALL}, options, H100, one_at_a_time=one_at_a_time) is None


@pytest.mark.parametrize(
    ("needs", "options", "one_at_a_time", "message"),
    [
        (
            [SMALL] * 4,
            {},
            False,
            "memory: arm 0 needs 18.8 GB: 16.0 GB weights, 2.0 GB KV cache of 8,192 tokens, 0.8 GB besides; 4 engines "
            "side by side get 18.0 GB each of the GPU's 80.0 GB; allowed: --one-at-a-time, fewer --arm",
        ),
        ([LARGE], {}, True, "80.0 GB; allowed: -- --max-model-len 35840, -- --tensor-parallel-size 2"),
        ([Need(240e9, 3e9, 8192)], {"tensor_parallel_size": 2}, True, "allowed: -- --tensor-parallel-size 4"),
        ([SMALL, SMALL], {"gpu_memory_utilization": 0.6}, False, "fewer --arm, a lower --gpu-memory-utilization"),
    ],
    ids=["side by side", "context", "weights", "shares"],
)
def test_what_does_not_fit_is_refused_with_numbers_and_ways(
    needs: list[Need], options: dict[str, Any], one_at_a_time: bool, message: str
) -> None:
    named = {f"arm {number}": need for number, need in enumerate(needs)}
    with pytest.raises(UserError) as refused:
        check_memory(named, options, H100, one_at_a_time=one_at_a_time)
    assert message in str(refused.value)


def test_a_cpus_engines_take_what_they_need_of_its_memory() -> None:
    cpu, needs = ("CPU", 32_000_000_000), {"none": Need(1e9, 1e9, 0), "large": Need(20e9, 1e9, 0)}
    assert check_memory(needs, {}, cpu, one_at_a_time=False) == 0.45
    with pytest.raises(UserError) as refused:
        check_memory({**needs, "third": Need(8e9, 1e9, 0)}, {}, cpu, one_at_a_time=False)
    assert "memory: large needs 21.8 GB: 20.0 GB weights, 1.0 GB KV cache, 0.8 GB besides" in str(refused.value)
    assert str(refused.value).endswith("of the CPU's 32.0 GB; allowed: --one-at-a-time, fewer --arm")
    with pytest.raises(UserError, match="allowed: a smaller model or KV cache, or more memory"):
        check_memory({"none": Need(40e9, 1e9, 0)}, {}, cpu, one_at_a_time=True)
