"""Engines and the reference that the engine tests compare with."""

from collections.abc import Iterator

import pytest

from tests.engine.arms import Arms
from tests.engine.exact import Reference


@pytest.fixture(scope="session")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arms]:
    """Runs jobs on engines."""
    arms = Arms(tmp_path_factory.mktemp("arms"))
    yield arms
    arms.stop()


@pytest.fixture(scope="session")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()
