"""Tests the memory of engines, and whether they fit; sizes are of the bundled models and of published configs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.memory import Need, check_memory, kv_bytes, need_of, weight_bytes

GPU, CPU = ("GPU", 80_000_000_000), ("CPU", 32_000_000_000)
TARGET, DRAFT = str(model_path("target")), str(model_path("draft"))
WEIGHTS = 3.67e6


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has one model: ten weights."""
    import huggingface_hub

    def metadata(name: str) -> Any:
        if name != "some/model":
            raise OSError("no such model")
        return SimpleNamespace(parameter_count={"BF16": 8, "F8_E4M3": 2})

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", metadata)


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ((TARGET, "torch.float32"), 4 * WEIGHTS),
        ((TARGET, "torch.bfloat16"), 2 * WEIGHTS),
        ((TARGET, "auto", "fp8"), WEIGHTS),
        ((TARGET, "auto", "bitsandbytes"), WEIGHTS / 2),
        (("some/model", "auto"), 8 * 2 + 2),
        (("nobody/has-this-here", "auto"), None),
        ((str(Path(__file__).parent), "auto"), None),
    ],
    ids=str,
)
def test_weights_are_counted_as_they_are_served(arguments: tuple[str, ...], size: float | None) -> None:
    assert weight_bytes(*arguments) == (size and pytest.approx(size, rel=0.01))


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, hidden_size=512, **values)


def test_a_text_takes_keys_and_values_of_each_layer() -> None:
    assert kv_bytes(config(), 100, 2) == 100 * 4 * 2 * 2 * 64 * 2
    assert kv_bytes(config(head_dim=128), 100, 1) == 100 * 4 * 2 * 2 * 128
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    assert kv_bytes(config(layer_types=kinds, sliding_window=10), 100, 2) == (3 * 10 + 100) * 2 * 2 * 64 * 2
    assert kv_bytes(config(kv_lora_rank=512, qk_rope_head_dim=64), 100, 2) == 100 * 4 * 576 * 2
    assert kv_bytes(None, 100, 2) == 0


def need(drafts: list[str], on_cpu: bool = False, **options: Any) -> Need:
    found = need_of(TARGET, drafts, options, on_cpu)
    assert found is not None
    return found


def test_an_engine_needs_all_weights_and_a_text_of_the_longest_context(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, both = need([], max_model_len=64), need([DRAFT], max_model_len=64)
    assert alone.weights == pytest.approx(2 * WEIGHTS, rel=0.01)
    assert both.weights - alone.weights == weight_bytes(DRAFT, "auto")
    assert (alone.tokens, both.kv > alone.kv > 0) == (64, True)
    assert need([], max_model_len=128).kv == 2 * alone.kv
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert need([], True) == Need(alone.weights, 2**30, 0)
    assert need([], True, kv_cache_memory_bytes=5).kv == 5
    assert need_of("nobody/has-this-here", [], {}, False) is None


SMALL, LARGE = Need(16e9, 2e9, 8192), Need(64e9, 10e9, 40960)


@pytest.mark.parametrize(
    ("needs", "options", "device", "one_at_a_time", "share"),
    [
        ([SMALL, SMALL], {}, GPU, False, 0.45),
        ([SMALL, SMALL], {}, GPU, True, None),
        ([SMALL, SMALL], {"gpu_memory_utilization": 0.4}, GPU, False, None),
        ([None], {}, GPU, True, None),
        ([Need(1e9, 1e9, 0), Need(20e9, 1e9, 0)], {}, CPU, False, 0.45),
    ],
    ids=["side by side", "one at a time", "given", "not known", "on a CPU"],
)
def test_engines_that_fit_share_the_device(
    needs: list[Need | None], options: dict[str, Any], device: tuple[str, int], one_at_a_time: bool, share: float | None
) -> None:
    named = {str(number): one for number, one in enumerate(needs)}
    assert check_memory(named, options, device, one_at_a_time=one_at_a_time) == share


@pytest.mark.parametrize(
    ("needs", "options", "device", "one_at_a_time", "message"),
    [
        (
            [SMALL] * 4,
            {},
            GPU,
            False,
            "memory: arm 0 needs 18.8 GB: 16.0 GB weights, 2.0 GB KV cache of 8,192 tokens, 0.8 GB besides; 4 engines "
            "side by side get 18.0 GB each of the GPU's 80.0 GB; allowed: --one-at-a-time, fewer --arm",
        ),
        ([LARGE], {}, GPU, True, "80.0 GB; allowed: -- --max-model-len 35840, -- --tensor-parallel-size 2"),
        ([Need(240e9, 3e9, 8192)], {"tensor_parallel_size": 2}, GPU, True, "allowed: -- --tensor-parallel-size 4"),
        ([SMALL, SMALL], {"gpu_memory_utilization": 0.6}, GPU, False, "fewer --arm, a lower --gpu-memory-utilization"),
        ([Need(20e9, 1e9, 0), Need(12e9, 1e9, 0)], {}, CPU, False, "memory: arm 0 needs 21.8 GB: 20.0 GB weights, 1.0"),
        ([Need(40e9, 1e9, 0)], {}, CPU, True, "allowed: a smaller model or KV cache, or more memory"),
    ],
    ids=["side by side", "context", "weights", "shares", "CPU", "alone on a CPU"],
)
def test_what_does_not_fit_is_refused_with_numbers_and_ways(
    needs: list[Need], options: dict[str, Any], device: tuple[str, int], one_at_a_time: bool, message: str
) -> None:
    with pytest.raises(UserError) as refused:
        check_memory({f"arm {i}": one for i, one in enumerate(needs)}, options, device, one_at_a_time=one_at_a_time)
    assert message in str(refused.value)
