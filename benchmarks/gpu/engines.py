"""Starts several engines at once: on a GPU they fit side by side, and a start takes longer than a run."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TypeVar

from vllm_spec_tools.engines.engine_child import EngineChild, EngineError

_Engine = TypeVar("_Engine", bound=EngineChild)


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
