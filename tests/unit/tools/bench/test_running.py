"""Engines of a benchmark start side by side, or one at a time."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench import arms as running
from vllm_spec_tools.bench import engine_args
from vllm_spec_tools.bench.arms import PlannedArm
from vllm_spec_tools.bench.engine_args import ArmPlan
from vllm_spec_tools.memory import OVERHEAD, weight_bytes

SHARED = ArmPlan("fixed.yaml")
ARMS = {"none": PlannedArm(ArmPlan(None)), "a": PlannedArm(SHARED, 1), "b": PlannedArm(SHARED, 4)}
TARGET = str(model_path("target"))


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What engines without processes do: their name with "starts" or "ends", and their arguments."""
    seen: list[tuple[str, ...]] = []

    class NoProcess:
        def __init__(self, arguments: dict[str, Any], *rest: Any, name: str) -> None:
            self.name, self.arguments = name.removeprefix("arm "), arguments

        def wait(self) -> None:
            seen.append((self.name, "starts"))

        def stop(self) -> None:
            seen.append((self.name, "ends"))

        def facts(self) -> dict[str, Any]:
            return {"memory": self.arguments.get("gpu_memory_utilization"), "dtype": self.arguments.get("dtype")}

    monkeypatch.setattr(running, "EngineProcess", NoProcess)
    monkeypatch.setattr(running, "device_memory", lambda: ("GPU", 80_000_000_000))
    monkeypatch.setattr(running, "runs_on_cpu", lambda: False)
    return seen


def started(folder: Path, **options: Any) -> Any:
    console = Console(file=io.StringIO())
    one_at_a_time = options.pop("one_at_a_time", False)
    return running.running_engines(ARMS, TARGET, 3, False, folder, console, options, one_at_a_time=one_at_a_time)


def test_arms_of_one_engine_start_it_once_and_engines_share_the_memory(
    tmp_path: Path, happened: list[tuple[str, ...]]
) -> None:
    with started(tmp_path, dtype="bfloat16") as engines:
        names = {name: engines.of(name, 1).name for name in ARMS}
        assert happened == [("none", "starts"), ("a, b", "starts")]
    assert names == {"none": "none", "a": "a, b", "b": "a, b"}
    assert set(happened[2:]) == {("none", "ends"), ("a, b", "ends")}
    assert engines.facts == {name: {"memory": 0.45, "dtype": "bfloat16"} for name in ARMS}


def test_one_at_a_time_an_engine_ends_before_the_next_starts_and_each_round_has_a_new_one(
    tmp_path: Path, happened: list[tuple[str, ...]]
) -> None:
    with started(tmp_path, one_at_a_time=True) as engines:
        for name, number in (("none", 0), ("a", 0), ("a", 0), ("b", 0), ("b", 1), ("none", None)):
            assert engines.of(name, number).name == name
    order = ["none", "a", "b", "b", "none"]
    assert happened == [(name, what) for name in order for what in ("starts", "ends")]
    assert set(engines.facts) == set(ARMS)


def test_on_a_cpu_engines_need_their_weights_and_a_cache_of_its_own_size(
    tmp_path: Path, happened: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    for module in (running, engine_args):
        monkeypatch.setattr(module, "runs_on_cpu", lambda: True)
    # Two engines: 1 GiB of cache and 15 MB of weights each.
    both = 2 * (2**30 + (weight_bytes(TARGET, "float32") or 0) + OVERHEAD)
    monkeypatch.setattr(running, "device_memory", lambda: ("CPU", int(both) + 1))
    with started(tmp_path):
        assert len(happened) == 2
    monkeypatch.setattr(running, "device_memory", lambda: ("CPU", int(both) - 1))
    with pytest.raises(UserError, match="KV cache"), started(tmp_path):
        pass


def test_engines_that_do_not_fit_do_not_start(tmp_path: Path, happened: list[tuple[str, ...]]) -> None:
    with pytest.raises(UserError, match="--one-at-a-time"), started(tmp_path, gpu_memory_utilization=0.6):
        pass
    assert not happened
