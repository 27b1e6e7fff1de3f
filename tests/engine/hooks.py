"""Changes an engine for tests: checks, faults and recordings, installed and put in force by the engine's process."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from tests.engine import books, faults, integrity, lengths, lifecycle, recorder, sessions, storm
from tests.without_v1 import HAS_V1


def install(arguments: dict[str, Any]) -> None:
    """Prepares for the engine that is built next; takes its own entries out of the arguments."""
    from vllm_spec_plugin.scheduling import token_only_drafts

    drafting_modules: list[Any] = [token_only_drafts]
    uses_generic_pass = arguments.pop("generic_pass")
    if HAS_V1:
        from vllm_spec_plugin.v1 import runner
        from vllm_spec_plugin.v1.compat.draft_pass import DraftPass
        from vllm_spec_plugin.v1.compat.eagle3 import HeadPass
        from vllm_spec_plugin.v1.drafting import draft_engine, drafter, head_engine

        # Kernels for each size of a step are made when it comes: at start they take seconds.
        vars(runner).update(DRAFT_SECONDS=0.0, TARGET_SECONDS=0.0)
        drafting_modules.append(drafter)
        if uses_generic_pass:
            draft_engine.draft_pass = DraftPass  # type: ignore[attr-defined]
            head_engine.head_pass = HeadPass  # type: ignore[attr-defined]
    if "weight_transfer_config" in arguments:
        lifecycle.install()
    if arguments.pop("check"):
        integrity.install()
    if arguments.pop("random_lengths") and "speculative_config" in arguments:
        arguments["speculative_config"] = lengths.with_random_lengths(arguments["speculative_config"])
        if HAS_V1:
            lengths.check_nodes()
    if arguments.pop("equal_steps"):
        lengths.equal_steps()
    if not arguments.get("speculative_config", "{").startswith("{"):
        faults.install(drafting_modules)
        lengths.long_calls()


@contextlib.contextmanager
def around(llm: Any, job: Any) -> Iterator[dict[str, Any]]:
    """Puts in force what the job names, and notes what it has recorded and how a draft model runs.

    Afterwards nothing may be left of the job's requests, see `books.py`.
    """
    from vllm_spec_plugin.scheduling.base import SpecScheduling

    with contextlib.ExitStack() as stack:
        request_ids = stack.enter_context(_request_ids(llm))
        passes = stack.enter_context(_passes_of_drafter(llm))
        if job.sabotage:
            from tests.engine import sabotage

            stack.enter_context(sabotage.SABOTAGES[job.sabotage]())
        if job.fault:
            fault, _, rank = job.fault.partition("@")
            stack.enter_context(faults.in_force_on(llm, fault, int(rank)) if rank else faults.in_force(fault))
        drafting = stack.enter_context(recorder.recording(job.record_drafting)) if job.record_drafting else []
        if job.sleep_level:
            llm.sleep(job.sleep_level)
            llm.wake_up()
        if job.weights:
            lifecycle.EVENTS[job.weights](llm)
        said = sessions.run(llm, job.sessions)
        outcomes = storm.run(llm, job.storm) if job.storm else []
        notes: dict[str, Any] = {
            "drafting": drafting,
            "draft_pass": _draft_pass(llm),
            "sessions": said,
            "storm": outcomes,
            "lengths": lengths.count_anew(),
            "passes": passes,
        }
        yield notes
    if isinstance(llm.llm_engine.engine_core.engine_core.scheduler, SpecScheduling):
        books.check(llm, request_ids)


@contextlib.contextmanager
def _request_ids(llm: Any) -> Iterator[set[str]]:
    """The ids of all requests that come to the scheduler while it lasts."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    request_ids: set[str] = set()
    add_request = scheduler.add_request

    def add(request: Any) -> None:
        request_ids.add(request.request_id)
        add_request(request)

    with mock.patch.object(scheduler, "add_request", add):
        yield request_ids


@contextlib.contextmanager
def _passes_of_drafter(llm: Any) -> Iterator[list[int]]:
    """The numbers of tokens of all forward passes of vLLM's drafter, while it lasts."""
    from vllm_spec_tools.engines.inspection import live_runner

    runner = None if llm.llm_engine.vllm_config.parallel_config.world_size > 1 else live_runner(llm)
    drafter = getattr(runner, "speculator", None) or getattr(runner, "drafter", None)
    model = getattr(drafter, "model", None)
    passes: list[int] = []
    if not type(drafter).__module__.startswith("vllm.") or not isinstance(model, torch.nn.Module):
        yield passes
        return
    forward = model.forward

    def counting(*args: Any, **kwargs: Any) -> Any:
        passes.append(len(kwargs["positions"]))
        return forward(*args, **kwargs)

    with mock.patch.object(model, "forward", counting):
        yield passes


def _draft_pass(llm: Any) -> str:
    from vllm_spec_tools.engines.inspection import live_runner

    if llm.llm_engine.vllm_config.parallel_config.world_size > 1:
        return ""
    engine = getattr(getattr(live_runner(llm), "drafter", None), "engine", None)
    return "" if engine is None else engine.execution_mode
