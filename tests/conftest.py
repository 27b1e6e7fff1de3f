"""What all tests share: the choice between default and full sample sizes."""

import os

import pytest

from tests.sizes import FULL, is_full


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="full sample sizes; the same as VLLM_SPEC_FULL=1")


def pytest_configure(config: pytest.Config) -> None:
    # Before test modules are imported: numbers of examples are settled then.
    if config.getoption("--full"):
        os.environ[FULL] = "1"


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether tests run with their full sample sizes."""
    return is_full()
