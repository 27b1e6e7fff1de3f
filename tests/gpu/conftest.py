"""Starts the engines of all arms at once: on a GPU they fit side by side, and a start takes longer than a test."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu.engines import all_started
from tests.engine.arms import ENVIRONMENT, RANDOM_LENGTHS
from tests.engine.jobs import JobResult, hooked
from tests.gpu.arms import ALL, Setup
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.bench.engine_args import arm_environment
from vllm_spec_tools.certify.baseline import Baseline, BaselineSizes, run_baseline
from vllm_spec_tools.certify.target_probabilities import RAW_LOGITS
from vllm_spec_tools.engines import jobs
from vllm_spec_tools.engines.engine_child import EngineError
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.engines.memory import beside_others

HAS_GPU = torch.cuda.is_available()
# Those that a CPU can rehearse with.
REHEARSED = ("none, V1", "draft_model", "native draft_model, V1", "cascade, few blocks")
# vLLM's drafters refuse some settings.
SIZES = BaselineSizes(True, 16, 48, 4, 300 if HAS_GPU else 100, 100, 1e9, seeded=2 if HAS_GPU else 0, by_vllm=True)


class Subject:
    """An arm's engine.

    Attributes:
        results: of its jobs.
    """

    def __init__(self, setup: Setup, engine: EngineProcess, **more: Any) -> None:
        self.setup, self._engine, self._more = setup, engine, more
        self.results: list[JobResult] = []

    def having(self, **more: Any) -> "Subject":
        """Returns it with attributes of the tests' `Job` in force, such as a fault."""
        return Subject(self.setup, self._engine, **more)

    def facts(self) -> dict[str, Any]:
        """Reads the engine's own choices."""
        return self._engine.facts()

    def run(self, job: jobs.Job) -> JobResult:
        """Runs a job."""
        self.results.append(self._engine.run(hooked(job, **self._more)))
        return self.results[-1]


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
def engines(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[dict[str, EngineProcess | EngineError]]":
    """Engines by name; of those that did not start the error."""
    folder, target = tmp_path_factory.mktemp("engines"), str(model_path("target"))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    begin, names = time.monotonic(), list(ALL if HAS_GPU else REHEARSED)
    starting = {name: _start(ALL[name], target, folder / str(i)) for i, name in enumerate(names)}
    with all_started(starting) as found:
        print(f"{len(found)} engines in {time.monotonic() - begin:.0f} s", flush=True)
        yield found


def _start(setup: Setup, target: str, folder: Path) -> EngineProcess:
    arguments: dict[str, Any] = {
        "model": target,
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 64,
        "seed": 0,
        "disable_log_stats": False,
        # Else a model may write blanks for as long as it may write.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    if HAS_GPU:
        arguments |= beside_others(1 << 29)
    if setup.config:
        arguments["speculative_config"] = setup.config
    else:
        arguments |= RAW_LOGITS
    hooks = {"hooks": "tests.engine.hooks", "check": setup.check, "equal_steps": False, "generic_pass": False}
    hooks["random_lengths"] = setup.config in RANDOM_LENGTHS
    environment = arm_environment(target) | {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]} | setup.environment
    return EngineProcess(arguments | setup.arguments | hooks, folder, environment)


@pytest.fixture
def arm(request: pytest.FixtureRequest, engines: "dict[str, EngineProcess | EngineError]") -> Subject:
    """The arm that a test is parametrized with."""
    return _ready(request.param, engines)


@pytest.fixture(scope="session")
def baseline(engines: "dict[str, EngineProcess | EngineError]") -> Baseline:
    """Runs the baseline that all others are compared with."""
    return run_baseline(_ready("none, V1", engines), None, SIZES, None, lambda what: None)


@pytest.fixture(scope="session")
def seeded(engines: "dict[str, EngineProcess | EngineError]", baseline: Baseline) -> Baseline:
    """The baseline with seeded outputs of the V2 runner, whose noise is another."""
    job = jobs.Job(baseline.work.coupled)
    return dataclasses.replace(baseline, coupled=_ready("none, V2", engines).run(job))


@pytest.fixture(scope="session")
def bfloat16(engines: "dict[str, EngineProcess | EngineError]") -> Subject:
    """The engine without speculation in bfloat16."""
    return _ready("none, bfloat16", engines)


def _ready(name: str, engines: "dict[str, EngineProcess | EngineError]") -> Subject:
    if name not in engines:
        pytest.skip("needs a GPU")
    engine = engines[name]
    if isinstance(engine, EngineError):
        pytest.fail(str(engine), pytrace=False)
    return Subject(ALL[name], engine)
