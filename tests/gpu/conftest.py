"""Starts the engines of all arms at once: on a GPU they fit side by side, and a start takes longer than a test."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu.engines import all_started
from tests.gpu.arms import ARMS, Setup
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.engine_args import arm_environment
from vllm_spec_tools.engine_child import EngineError

HAS_GPU = torch.cuda.is_available()
# Those that a CPU can rehearse with.
REHEARSED = ("none, V1", "draft_model", "native draft_model, V1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds options."""
    parser.addoption("--rehearse", action="store_true", help="run on a CPU, with a few arms")
    parser.addoption("--results", type=Path, help="file to which each test appends a line of JSON as it ends")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips all tests where there is no GPU."""
    if not HAS_GPU and not config.getoption("--rehearse", default=False):
        skip = pytest.mark.skip(reason="no GPU here: run `make test-gpu` on a CUDA host")
        for item in items:
            if "tests/gpu" in str(item.path):
                item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Writes the result of each test as it ends, so that an interrupted run counts."""
    report: Any = yield
    path = item.config.getoption("--results", default=None)
    if path and (report.when == "call" or report.outcome != "passed"):
        text = str(report.longrepr)[-1500:] if report.failed else ""
        line = {"test": item.name, "outcome": report.outcome, "seconds": round(report.duration, 2), "text": text}
        with path.open("a") as file:
            file.write(json.dumps(line | dict(item.user_properties)) + "\n")
    return report


@pytest.fixture(scope="session")
def names(request: pytest.FixtureRequest) -> list[str]:
    """The arms that run here."""
    return list(ARMS if HAS_GPU else REHEARSED)


@pytest.fixture(scope="session")
def engines(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Arm | EngineError]]:
    """Engines by name; of those that did not start the error."""
    folder, target = tmp_path_factory.mktemp("engines"), str(model_path("target"))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    begin = time.monotonic()
    starting = {name: _start(ARMS[name], name, target, folder / str(i)) for i, name in enumerate(names)}
    with all_started(starting) as found:
        print(f"{len(found)} engines in {time.monotonic() - begin:.0f} s", flush=True)
        yield found


def _start(arm: Setup, name: str, target: str, folder: Path) -> Arm:
    arguments: dict[str, Any] = {
        "model": target,
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 64,
        "seed": 0,
    }
    if HAS_GPU:
        arguments["kv_cache_memory_bytes"] = 1 << 30
    if arm.speculation is not None:
        arguments["speculative_config"] = arm.speculation
    environment = arm_environment(target) | arm.environment
    return Arm(name, arguments | arm.arguments, environment, folder)
