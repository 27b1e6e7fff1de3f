"""Proposers that go wrong on purpose, around a sound one."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from tests.acceptance.chaos.faulty_proposer import FAULTS
from vllm_spec_plugin.proposers.base import Draft, Proposer, RequestView

_active: list[str] = []


class FaultyProposer:
    """Passes a sound proposer's drafts on, but not in every other step while a fault is in force."""

    def __init__(self, sound: Proposer) -> None:
        self._sound, self._num_steps = sound, 0

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """The sound proposer's drafts, or what the fault makes of them.

        With "idle", which is no fault, no request is to be drafted for in two steps of three.
        """
        self._num_steps += 1
        if _active and _active[-1] == "idle" and self._num_steps % 3:
            # Nobody wants drafts: what the sound one makes of it is its own affair.
            requests = [request._replace(num_draft_tokens=0) for request in requests]
        drafts = self._sound.propose(requests)
        if _active and _active[-1] in FAULTS and self._num_steps % 2:
            faulty: list[Draft] = FAULTS[_active[-1]](requests, drafts)
            return faulty
        return drafts

    def __getattr__(self, name: str) -> Any:
        """Forwards all else."""
        return getattr(self._sound, name)


def install() -> None:
    """Wraps the proposer of every engine that is built from now on."""
    from vllm_spec_plugin.scheduling import token_only_drafts
    from vllm_spec_plugin.v1.drafting import drafter
    from vllm_spec_plugin.v1.proposers.create import create_proposer

    for module in (token_only_drafts, drafter):
        mock.patch.object(module, "create_proposer", lambda *args: FaultyProposer(create_proposer(*args))).start()


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
                stack.enter_context(_failing(owner, name))
            yield
    finally:
        _active.pop()


@contextlib.contextmanager
def _failing(owner: type, name: str) -> Iterator[None]:
    """Every seventh call of a method fails."""
    method, calls = getattr(owner, name), itertools.count(1)

    def call_or_fail(self: Any, *args: Any) -> Any:
        if not next(calls) % 7:
            raise torch.OutOfMemoryError("on purpose")
        return method(self, *args)

    with mock.patch.object(owner, name, call_or_fail):
        yield
