"""Engines and the reference that the engine tests compare with."""

import os
from collections.abc import Iterator

import pytest

from tests.engine.arms import Arms
from tests.engine.exact import Reference


@pytest.fixture(scope="session")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arms]:
    """Runs jobs on engines."""
    # Workers of pytest-xdist have folders side by side.
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    arms = Arms(tmp_path_factory.mktemp("arms"), shared / "results")
    yield arms
    arms.stop()


@pytest.fixture(scope="session")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()
