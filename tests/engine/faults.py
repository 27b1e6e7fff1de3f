"""Proposers that go wrong on purpose, around a sound one: all of an engine's, or those of one tensor-parallel rank.

A served engine's processes load `register` as a plugin, by the entry point in `vllm_plugin/`.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from vllm_spec_plugin.metrics import counters
from vllm_spec_plugin.proposers.base import Draft, Proposer, RequestView
from vllm_spec_plugin.verification.draft_probs import SparseProbs

_active: list[str] = []
_ENTRY_POINT, _ROOT = Path(__file__).parent / "vllm_plugin", Path(__file__).parents[2]
Fault = Callable[[Sequence[RequestView], list[Draft]], Any]


def _raise(requests: Sequence[RequestView], drafts: list[Draft]) -> Any:
    raise RuntimeError("on purpose")


def _each(make: Callable[[int], Draft]) -> Fault:
    """A fault with the same draft for every request of that many draft tokens."""
    return lambda requests, drafts: [make(request.num_draft_tokens) for request in requests]


def _nan_probs(count: int) -> Draft:
    ids, probs = torch.ones((count, 1), dtype=torch.int64), torch.full((count, 1), torch.nan)
    return Draft([1] * count, SparseProbs(ids, probs))


# By name, what becomes of a proposer's requests and drafts, and the reason as which it is counted.
_FAULTS: dict[str, tuple[Fault, str]] = {
    "raise": (_raise, counters.RAISED),
    "out_of_vocabulary": (_each(lambda count: Draft([2_000_000] * count)), counters.OUT_OF_VOCABULARY),
    "negative_token": (_each(lambda count: Draft([-1] * count)), counters.OUT_OF_VOCABULARY),
    "too_many_tokens": (_each(lambda count: Draft([1] * (count + 3))), counters.TOO_MANY_TOKENS),
    "float_tokens": (_each(lambda count: Draft(np.ones(count))), counters.WRONG_TYPE),  # type: ignore[arg-type]
    "nan_probs": (_each(_nan_probs), counters.BAD_PROBS),
    "too_few_drafts": (lambda requests, drafts: drafts[:-1], counters.WRONG_COUNT),
    "no_list": (lambda requests, drafts: None, counters.RAISED),
}
REASONS = {name: reason for name, (_, reason) in _FAULTS.items()}


class FaultyProposer:
    """Passes a sound proposer's drafts on, but not in every `period`th step while a fault is in force."""

    def __init__(self, sound: Proposer, fault: Callable[[], str], period: int) -> None:
        self.sound, self._fault, self._period, self._num_steps = sound, fault, period, 0

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """The sound proposer's drafts, or what the fault makes of them.

        With "idle", which is no fault, no request is to be drafted for in two steps of three.
        """
        self._num_steps += 1
        fault = self._fault()
        if fault == "idle" and self._num_steps % 3:
            # Nobody wants drafts: what the sound one makes of it is its own affair.
            requests = [request._replace(num_draft_tokens=0) for request in requests]
        if self._num_steps % self._period:
            return self.sound.propose(requests)
        if fault == "raise_early":
            raise RuntimeError("on purpose")
        drafts = self.sound.propose(requests)
        if fault == "other_tokens":
            return [replace(draft, token_ids=[(token + 1) % 2000 for token in draft.token_ids]) for draft in drafts]
        if fault == "other_q":
            return [replace(d, probs=torch.full((len(d.token_ids), 2048), 1 / 2048)) for d in drafts]
        faulty: list[Draft] = _FAULTS[fault][0](requests, drafts) if fault in _FAULTS else drafts
        return faulty

    def __getattr__(self, name: str) -> Any:
        """Forwards all else."""
        return getattr(self.sound, name)


def install(modules: Sequence[Any], fault: Callable[[], str] | None = None, period: int = 2) -> None:
    """Wraps the proposers that these modules create from now on; None is the fault that is in force."""
    fault = fault or (lambda: _active[-1] if _active else "")

    def faulty(create: Callable[..., Any]) -> Callable[..., FaultyProposer]:
        return lambda *args: FaultyProposer(create(*args), fault, period)

    for module in modules:
        mock.patch.object(module, "create_proposer", faulty(module.create_proposer)).start()


def environment() -> dict[str, str]:
    """Returns the environment variables with which a server's own proposers fail in every fifth step."""
    path = [str(_ENTRY_POINT), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def register() -> None:
    """Makes proposers fail, each time in another way; vLLM calls it in each process before one is created."""
    from vllm_spec_plugin.v1.proposers import create

    rng = random.Random(0)
    install([create], lambda: rng.choice(list(_FAULTS)), 5)


@contextlib.contextmanager
def in_force(fault: str) -> Iterator[None]:
    """While it lasts, every other step has that fault.

    With "out_of_memory" every seventh pass of a draft model or head fails, with "hidden_states" every seventh step's
    hidden states cannot be kept.
    """
    from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine
    from vllm_spec_plugin.v1.drafting.head_engine import HeadEngine
    from vllm_spec_plugin.v1.drafting.state_buffer import StateBuffer

    failing: dict[str, list[tuple[type, str]]] = {
        "out_of_memory": [(VllmDraftEngine, "_forward"), (HeadEngine, "_forward")],
        "hidden_states": [(StateBuffer, "add")],
    }
    _active.append(fault)
    try:
        with contextlib.ExitStack() as stack:
            for owner, name in failing.get(fault, ()):
                stack.enter_context(mock.patch.object(owner, name, _failing(getattr(owner, name))))
            yield
    finally:
        _active.pop()


def _failing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of which every seventh call fails."""
    calls = itertools.count(1)

    def call_or_fail(self: Any, *args: Any) -> Any:
        if not next(calls) % 7:
            raise torch.OutOfMemoryError("on purpose")
        return method(self, *args)

    return call_or_fail


@contextlib.contextmanager
def in_force_on(llm: Any, fault: str, rank: int) -> Iterator[None]:
    """While it lasts, all proposers of that rank have the fault in every third of their steps.

    With "raise_in_pass" the rank's fifth pass of the draft model fails, which the engine does not survive.
    """
    llm.collective_rpc(_begin, args=(fault, rank))
    yield
    llm.collective_rpc(_end)


def _begin(worker: Any, fault: str, rank: int) -> None:
    if worker.rank != rank:
        return
    drafter = worker.model_runner.drafter
    if fault == "raise_in_pass":
        _fail_in_pass(drafter.engine)
        return
    for guarded in drafter._proposers:
        guarded._proposer = FaultyProposer(guarded._proposer, lambda: fault, 3)


def _fail_in_pass(engine: Any) -> None:
    from vllm_spec_plugin.v1.drafting import ranks

    ranks.SECONDS_AFTER_FAULT = 5.0
    forward, passes = engine._forward, iter(range(5))

    def forward_or_fail(*args: Any) -> Any:
        if next(passes, None) is None:
            raise torch.OutOfMemoryError("on purpose")
        return forward(*args)

    engine._forward = forward_or_fail


def _end(worker: Any) -> None:
    for guarded in worker.model_runner.drafter._proposers:
        if getattr(guarded._proposer, "_period", 0) == 3:
            guarded._proposer = guarded._proposer.sound
