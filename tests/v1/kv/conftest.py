"""A small KV cache with one running request."""

import pytest

from tests.unit.scheduling.cases import prompt, request
from tests.v1.kv.pool import make_manager, start


@pytest.fixture
def manager():
    return make_manager(10)


@pytest.fixture
def running(manager):
    """A request with a text of 6 tokens in 2 blocks, of 9 in the pool."""
    running = request("a", prompt(1, 6))
    start(manager, running)
    return running
