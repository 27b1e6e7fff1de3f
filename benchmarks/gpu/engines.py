"""Starts several engines at once: on a GPU they fit side by side, and a start takes longer than a run."""

import contextlib
from collections.abc import Iterator, Mapping

from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.engine_child import EngineError


@contextlib.contextmanager
def all_started(arms: Mapping[str, Arm]) -> Iterator[dict[str, Arm | EngineError]]:
    """Waits for engines, whose processes have begun; yields each, or the error with which it did not start."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Arm | EngineError] = {}
        for name, arm in arms.items():
            try:
                found[name] = stack.enter_context(arm)
            except EngineError as error:
                found[name] = error
        yield found
