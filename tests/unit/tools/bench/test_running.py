"""Engines of a benchmark start one after the other."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vllm_spec_plugin.tools.bench import running
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan


def test_arms_of_one_engine_start_it_once_and_engines_share_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, dict[str, Any]] = {}

    @contextlib.contextmanager
    def no_process(name: str, arguments: dict[str, Any], *rest: Any) -> Iterator[str]:
        started[name] = arguments
        yield name.upper()

    monkeypatch.setattr(running, "Arm", no_process)
    shared = ArmPlan("fixed.yaml")
    arms = {"none": PlannedArm(ArmPlan(None)), "a": PlannedArm(shared, 1), "b": PlannedArm(shared, 4)}
    with running.running_engines(arms, "target", 3, False, tmp_path, Console(file=io.StringIO())) as engines:
        assert {name: str(engine) for name, engine in engines.items()} == {"none": "NONE", "a": "A, B", "b": "A, B"}
    memory = {name: arguments["gpu_memory_utilization"] for name, arguments in started.items()}
    assert memory == {"none": 0.4, "a, b": 0.4}
