"""The parts of an engine's step, and which methods they are."""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

from vllm_spec_plugin.tools.bench.host.stopwatch import Stopwatch, TimedModel, replaced

SCHEDULE = "schedule"
LENGTHS = "draft lengths"
MESSAGES = "messages"
INPUTS = "inputs"
FORWARD = "forward"
SAMPLER = "sampler"
BOOKKEEPING = "bookkeeping"
VIEWS = "views"
PROPOSER = "proposer"
DRAFT = "draft model"
FRONTEND = "frontend"
PARTS = (SCHEDULE, LENGTHS, MESSAGES, INPUTS, SAMPLER, BOOKKEEPING, VIEWS, PROPOSER, FRONTEND, DRAFT, FORWARD)
# What models compute; the rest of a step is host time.
MODELS = (DRAFT, FORWARD)

_ADAPTER_MODULE = "vllm_spec_plugin.scheduling.adapter"


def timed_methods(engine: Any) -> Iterator[tuple[Any, str, str]]:
    """Yields owner, method and part, each method called a fixed number of times per step.

    The part of a method that calls others of these is what it does besides.

    Args:
        engine: vLLM's `LLMEngine`, all in one process.
    """
    client = engine.engine_core
    scheduler, runner = client.engine_core.scheduler, _runner(engine)
    drafter = getattr(runner, "drafter", None)
    adapters = [thing for thing in vars(scheduler).values() if type(thing).__module__ == _ADAPTER_MODULE]
    named = [
        (engine, FRONTEND, ("step",)),
        (client, MESSAGES, ("get_output",)),
        (scheduler, SCHEDULE, ("schedule",)),
        (scheduler, LENGTHS, ("_count_acceptance",)),
        *((adapter, LENGTHS, ("started", "plan", "updated")) for adapter in adapters),
        (scheduler, BOOKKEEPING, ("update_from_output", "update_draft_token_ids")),
        (runner, MESSAGES, ("sample_tokens",)),
        (runner, INPUTS, ("execute_model",)),
        (runner, SAMPLER, ("_sample",)),
        (runner, BOOKKEEPING, ("_bookkeeping_sync",)),
        # vLLM drafts in the first, the plugin in the second.
        (runner, VIEWS, ("propose_draft_token_ids", "take_draft_token_ids")),
        # Ours is called `draft`; its `propose` is there for vLLM to look at.
        (drafter, PROPOSER, ("draft",) if hasattr(drafter, "draft") else ("propose",)),
        (drafter, MESSAGES, ("note_step",)),
        (runner, FORWARD, ("_model_forward",)),
        (runner.model, FORWARD, ("compute_logits",)),
        (getattr(_model_owner(runner), "_pass", None), DRAFT, ("run",)),
    ]
    # vLLM's own classes lack ours, and ours need not call each of these.
    return ((owner, name, part) for owner, part, names in named for name in names if hasattr(owner, name))


@contextlib.contextmanager
def timed_steps(engine: Any, clock: Callable[[], float], parts: Collection[str]) -> Iterator[Stopwatch]:
    """Times parts of an engine's steps while the context lasts.

    Args:
        engine: vLLM's `LLMEngine`, all in one process.
        clock: returns the time in seconds.
        parts: which of `PARTS`.
    """
    stopwatch = Stopwatch(clock)
    with contextlib.ExitStack() as stack:
        for owner, name, part in list(timed_methods(engine)):
            if part in parts:
                stack.enter_context(replaced(owner, name, functools.partial(stopwatch.timed, part)))
        runner = _runner(engine)
        # vLLM's drafter calls its model itself.
        if hasattr(getattr(runner, "drafter", None), "model"):
            make = functools.partial(TimedModel, stopwatch=stopwatch, part=DRAFT)
            stack.enter_context(replaced(runner.drafter, "model", make))
        yield stopwatch


def _model_owner(runner: Any) -> Any:
    """Returns what holds a runner's draft model: vLLM's drafter, or our draft engine; None without one."""
    drafter = getattr(runner, "drafter", None)
    return drafter if hasattr(drafter, "model") else getattr(drafter, "engine", None)


def _runner(engine: Any) -> Any:
    return engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
