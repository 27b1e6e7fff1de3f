"""Requests that are open when a server stops end with an error, in servers with a plugin.yaml only."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.compat import frontend

async_llm = pytest.importorskip("vllm.v1.engine.async_llm")
exceptions = pytest.importorskip("vllm.exceptions")
OURS: Any = SimpleNamespace()
ANOTHER: Any = SimpleNamespace()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class like vLLM's frontend, patched: vLLM's own stays as it is."""
    own: Any = type("Own", (async_llm.AsyncLLM,), {})
    monkeypatch.setattr(own, "shutdown", frontend._ending_requests(lambda config: config is OURS)(own.shutdown))
    return own


def stopped(kind: Any, speculative_config: object) -> tuple[list[Exception], asyncio.Task[None]]:
    """Stops a frontend with one open request; returns what the request gets, and vLLM's task."""

    async def run() -> tuple[list[Exception], asyncio.Task[None]]:
        got: list[Exception] = []
        engine = kind.__new__(kind)
        engine.vllm_config = SimpleNamespace(speculative_config=speculative_config)
        engine.output_processor = SimpleNamespace(propagate_error=got.append)
        engine.output_handler = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        await asyncio.to_thread(engine.shutdown, 0)
        await asyncio.sleep(0.01)
        task = engine.output_handler
        # Else it would be stopped again when it is deleted.
        engine.output_handler = None
        return got, task

    return asyncio.run(run())


def test_an_open_request_gets_status_503_once_the_engine_has_stopped(make: Any) -> None:
    (error,), task = stopped(make, OURS)
    assert isinstance(error, exceptions.GracefulHTTPError)
    assert error.http_status == 503
    assert task.cancelled()


def test_servers_without_a_plugin_yaml_stop_as_before(make: Any) -> None:
    got, task = stopped(make, ANOTHER)
    assert not got
    assert task.cancelled()
