"""Whether anything of a request is kept when it is gone."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# vLLM's note of the latest step, which the next one replaces.
_OF_THE_LATEST_STEP = "_draft_token_req_ids"


def check(llm: Any, request_ids: Iterable[str]) -> None:
    """Checks scheduler and worker of an engine that has no request left.

    Args:
        llm: vLLM's `LLM`, with its engine core in this process.
        request_ids: of all requests that it has had.

    Raises:
        AssertionError: names what still holds them, or KV cache blocks that are still in use.
    """
    core = llm.llm_engine.engine_core.engine_core
    # Workers are told with the next step of requests that have ended.
    while core.scheduler.has_requests():
        core.post_step(core.step_fn()[1])
    scheduler, gone = core.scheduler, frozenset(request_ids)
    kept = [holding(scheduler, gone, "scheduler"), *llm.collective_rpc(_held_by_worker, args=(gone,))]
    assert not any(kept), f"kept of requests that are gone: {kept}"
    # The plugin's own scheduler, which changes block tables, can check them.
    if hasattr(scheduler, "check_integrity"):
        scheduler.check_integrity()
    pool = scheduler.kv_cache_manager.block_pool
    used = [block.block_id for block in pool.blocks if block.ref_cnt and not block.is_null]
    assert not used, f"KV blocks of no request: {used}"


def _held_by_worker(worker: Any, request_ids: frozenset[str]) -> list[str]:
    return holding(worker.model_runner, request_ids, f"rank {worker.rank}'s runner")


def holding(root: Any, request_ids: frozenset[str], name: str) -> list[str]:
    """Finds containers with request ids among their keys or elements, in an object and the plugin's objects below it.

    Args:
        root: looked at whatever its class is.
        request_ids: of requests that are gone.
        name: of `root`, for the answer.

    Returns:
        Where they are, and one of the ids that are there.
    """
    found, seen = [], set()
    left: list[tuple[str, Any]] = [(name, root)]
    while left:
        path, value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping | set | frozenset | list | tuple) or _is_queue(value):
            ids = [one for one in value if isinstance(one, str) and one in request_ids]
            # A record, such as the latest step's view of a request, is no container.
            if ids and not hasattr(value, "_fields"):
                found.append(f"{path} ({ids[0]})")
            values = value.items() if isinstance(value, Mapping) else enumerate(value)
            left += [(f"{path}[{key!r}]", one) for key, one in values if not isinstance(one, str | int | float)]
        elif value is root or type(value).__module__.startswith("vllm_spec_plugin"):
            left += [(f"{path}.{key}", one) for key, one in _attributes(value)]
    return found


def _is_queue(value: Any) -> bool:
    return type(value).__name__ == "deque"


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from ((key, one) for key, one in getattr(value, "__dict__", {}).items() if key != _OF_THE_LATEST_STEP)
    for cls in type(value).__mro__:
        for key in getattr(cls, "__slots__", ()):
            if hasattr(value, key):
                yield key, getattr(value, key)
