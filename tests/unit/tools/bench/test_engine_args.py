"""Tests the arguments of engines."""

from pathlib import Path

import pytest

from vllm_spec_tools.bench import engine_args
from vllm_spec_tools.bench.arms import base_of, plan_arms
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments
from vllm_spec_tools.engines.serving import KV_SPACE


@pytest.mark.parametrize("on_cpu", [True, False])
def test_engines_differ_in_their_speculation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    monkeypatch.setattr(engine_args, "runs_on_cpu", lambda: on_cpu)
    planned = plan_arms(["stock:draft_model:3", "optimal"], base_of(None, None), tmp_path)
    none, stock, plugin = (engine_arguments(arm.plan, "target", 5, False) for arm in planned.values())
    assert ("dtype" in none) == on_cpu
    assert "speculative_config" not in none
    assert stock.pop("speculative_config") != plugin.pop("speculative_config")
    # vLLM's V1 sampler reads uninitialised memory on CPUs.
    assert (stock.pop("worker_extension_cls", None) is not None) == on_cpu
    assert none == stock == plugin
    assert (none["model"], none["seed"], none["enforce_eager"]) == ("target", 5, False)


def test_options_win_over_what_is_chosen_and_over_the_default_kv_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KV_SPACE, raising=False)
    monkeypatch.setattr(engine_args, "serving_environment", lambda target: {KV_SPACE: "1"})
    options = {"dtype": "bfloat16", "kv_cache_memory_bytes": 7}
    arguments = engine_arguments(ArmPlan(None), "target", 5, True, 0.4, options)
    assert {name: arguments[name] for name in options} == options
    assert arm_environment("target")[KV_SPACE] == "1"
    assert KV_SPACE not in arm_environment("target", options)
