"""Fixtures of all tests: sample sizes and the device."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests import cores
from tests.sizes import FULL, is_full

if TYPE_CHECKING:
    import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="full sample sizes; the same as VLLM_SPEC_FULL=1")
    parser.addoption("--device", default="cpu", help="where tests in torch alone make tensors: cpu, cuda, or pretended")
    parser.addoption(
        "--own-core", action="store_true", help="each pytest-xdist worker has a core, and the engines that it shares"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Before test modules are imported: numbers of examples are settled then.
    if config.getoption("--full"):
        os.environ[FULL] = "1"
    # Servers of tests begin cold.
    os.environ.setdefault("VLLM_SPEC_MEMORY", "0")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and config.getoption("--own-core"):
        cores.take_one(worker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--own-core"):
        from tests.groups import longest_first

        longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if not config.getoption("--own-core"):
        return None
    from tests.groups import ByConfiguration

    return ByConfiguration(config, log)


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether tests run with their full sample sizes."""
    return is_full()


@pytest.fixture
def device(request: pytest.FixtureRequest) -> "Iterator[torch.device]":
    """Device for tests' tensors; tests that ask for it are skipped if torch has no such device."""
    import torch

    name = request.config.getoption("--device")
    if name == "pretended":
        from tests.pretended_gpu import pretended

        with pretended() as device:
            yield device
        return
    if torch.device(name).type == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"--device {name}: torch {torch.__version__} finds no CUDA GPU here")
    yield torch.device(name)
