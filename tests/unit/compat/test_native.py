"""Tests what the scheduler is told of vLLM's drafters and samplers."""

from types import SimpleNamespace
from typing import Any

import pytest

import vllm_spec_plugin
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from vllm_spec_plugin.compat.native import can_shorten, holds_min_tokens_too_long, samples_drafts
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register.modes import PATCHED_SAMPLER

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs


def vllm_config(method: str = "eagle3", *, is_v2: bool = False, replicas: int = 1, drawn: str = "greedy") -> Any:
    return SimpleNamespace(
        use_v2_model_runner=is_v2,
        parallel_config=SimpleNamespace(data_parallel_size=replicas),
        speculative_config=SimpleNamespace(method=method, draft_sample_method=drawn),
    )


@pytest.mark.parametrize(
    ("config", "can"),
    [
        (vllm_config("eagle3"), True),
        (vllm_config("medusa"), False),
        (vllm_config("medusa", is_v2=True), True),
        # Replicas whose drafter computes together draft alike.
        (vllm_config("eagle3", replicas=2), False),
        (vllm_config("eagle3", replicas=2, is_v2=True), False),
    ],
)
def test_a_drafter_is_told_to_draft_less_where_it_can(config: Any, can: bool) -> None:
    assert can_shorten(config) == can


def test_min_tokens_bound_drafts_on_v1_and_a_q_is_kept_of_sampled_drafts() -> None:
    assert [holds_min_tokens_too_long(vllm_config(is_v2=is_v2)) for is_v2 in (False, True)] == [True, False]
    assert [samples_drafts(vllm_config(drawn=method)) for method in ("greedy", "probabilistic")] == [False, True]


def test_workers_on_a_cpu_get_a_right_sampler() -> None:
    arguments = EngineArgs(
        model=str(model_path("target")),
        dtype="float32",
        max_model_len=64,
        speculative_config=vllm_spec_plugin.speculative_config(native(STOCK_DRAFT_MODEL, 2)),
    )
    served = arguments.create_engine_config()
    assert (served.parallel_config.worker_extension_cls == PATCHED_SAMPLER) == (
        served.device_config.device_type == "cpu"
    )
