"""What all tests share: the choice between default and full sample sizes."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="full sample sizes; the same as VLLM_SPEC_FULL=1")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether tests run with their full sample sizes."""
    return bool(request.config.getoption("--full")) or os.environ.get("VLLM_SPEC_FULL", "0") not in ("", "0")
