"""Proposers that go wrong on one tensor-parallel rank only, in the worker's own process."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from tests.acceptance.chaos.faulty_proposer import FAULTS
from vllm_spec_plugin.proposers.base import Draft, Proposer, RequestView


class FaultOnRank:
    """Passes a sound proposer's drafts on, but not in every third step."""

    def __init__(self, sound: Proposer, fault: str) -> None:
        self.sound, self._fault, self._num_steps = sound, fault, 0

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """The sound proposer's drafts, or what the fault makes of them."""
        self._num_steps += 1
        if self._num_steps % 3:
            return self.sound.propose(requests)
        if self._fault == "raise_early":
            raise RuntimeError("on purpose")
        drafts = self.sound.propose(requests)
        if self._fault == "other_tokens":
            return [replace(draft, token_ids=[(token + 1) % 2000 for token in draft.token_ids]) for draft in drafts]
        if self._fault == "other_q":
            return [replace(draft, probs=_uniform(len(draft.token_ids))) for draft in drafts]
        faulty: list[Draft] = FAULTS[self._fault](requests, drafts)
        return faulty

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)


def _uniform(num_tokens: int) -> torch.Tensor:
    return torch.full((num_tokens, 2048), 1 / 2048)


@contextlib.contextmanager
def in_force(llm: Any, fault: str, rank: int) -> Iterator[None]:
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
        guarded._proposer = FaultOnRank(guarded._proposer, fault)


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
        if isinstance(guarded._proposer, FaultOnRank):
            guarded._proposer = guarded._proposer.sound
