"""The mock server, as the tests of load tests use it: this module alone knows where it is."""

from typing import Any

from tests.mock_server import MockOptions, MockServer


def mock(**options: Any) -> MockServer:
    """A mock server on a free port; by default fast, with 2.5 tokens per chunk."""
    return MockServer(MockOptions(**{"port": 0, "ttft_ms": 20, "itl_ms": 2, "tokens_per_chunk": 2.5} | options))
