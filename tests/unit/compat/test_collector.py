"""Outputs that come faster than a client takes them reach it one by one, where the stream is taken apart."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.compat import frontend

processor = pytest.importorskip("vllm.v1.engine.output_processor")
KINDS = pytest.importorskip("vllm.sampling_params").RequestOutputKind


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class like vLLM's, taken apart: vLLM's own stays as it is."""
    monkeypatch.setattr(processor, "RequestOutputCollector", type("Own", (processor.RequestOutputCollector,), {}))
    frontend.keep_outputs_apart()
    return processor.RequestOutputCollector


def test_each_output_of_a_stream_comes_by_itself_in_order(make: Any) -> None:
    async def taken() -> list[int]:
        collector = make(KINDS.DELTA, "a")
        for i in range(3):
            collector.put(SimpleNamespace(number=i))
        first = await collector.get()
        collector.put(SimpleNamespace(number=3))
        rest = [collector.get_nowait() for _ in range(2)]
        last = await asyncio.wait_for(collector.get(), 5)
        assert collector.get_nowait() is None
        return [each.number for each in (first, *rest, last)]

    assert asyncio.run(taken()) == [0, 1, 2, 3]
