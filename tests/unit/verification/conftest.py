"""Random numbers for random cases."""

import numpy as np
import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """The generator of `random_cases`."""
    return np.random.default_rng(request.param)
