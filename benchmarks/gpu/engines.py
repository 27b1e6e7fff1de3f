"""Starts several engines at once: on a GPU they fit side by side, and a start takes longer than a run."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from vllm_spec_tools.engine_child import EngineChild, EngineError

_Engine = TypeVar("_Engine", bound=EngineChild)
# vLLM does not start where less of the device than this share is free. It takes no memory by it.
_FREE = 0.01


def beside_others(kv_bytes: int) -> dict[str, Any]:
    """Returns arguments of an engine that shares a GPU with others, with a KV cache of `kv_bytes`."""
    return {"kv_cache_memory_bytes": kv_bytes, "gpu_memory_utilization": _FREE}


@contextlib.contextmanager
def all_started(engines: Mapping[str, _Engine]) -> Iterator[dict[str, _Engine | EngineError]]:
    """Waits for engines, whose processes have begun; yields each, or the error with which it did not start."""
    with contextlib.ExitStack() as stack:
        found: dict[str, _Engine | EngineError] = {}
        for engine in engines.values():
            stack.callback(engine.stop)
        for name, engine in engines.items():
            try:
                engine.wait()
            except EngineError as error:
                found[name] = error
            else:
                found[name] = engine
        yield found
