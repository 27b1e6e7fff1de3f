"""Scorers that are wrong on purpose, to show that the statistical checks would notice."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from vllm_spec_plugin.verification import chain, tree


@contextlib.contextmanager
def accept_everything() -> Iterator[None]:
    """Every draft token is kept."""
    with mock.patch.object(chain, "_leading", lambda accepted, rows: rows.num_draft_tokens.clone()):
        yield


@contextlib.contextmanager
def recover_from_p() -> Iterator[None]:
    """After a rejection the token is drawn from p instead of norm(max(0, p - q))."""
    with mock.patch.object(chain, "_residual", lambda probs, *_: probs):
        yield


@contextlib.contextmanager
def ignore_temperature() -> Iterator[None]:
    """Draft tokens are judged at temperature 1; rows that judge no draft keep their temperature."""
    from vllm_spec_plugin.verification import sampler
    from vllm_spec_plugin.verification.constraints import constrain

    def constrain_at_one(target: Any, metadata: Any) -> torch.Tensor:
        logits = constrain(target, metadata)
        at_one = dataclasses.replace(metadata, temperature=torch.ones_like(metadata.temperature))
        logits[target.rows.draft_row] = constrain(target, at_one)[target.rows.draft_row]
        return logits

    with mock.patch.object(sampler, "constrain", constrain_at_one):
        yield


@contextlib.contextmanager
def siblings_from_p() -> Iterator[None]:
    """Siblings are judged like independent draws, certain ones too: p stays p after one was rejected."""

    def try_all(self: Any, request: Any) -> bool:
        if self._drawn is None:
            self._q = torch.ones(len(self._tokens), device=self._tokens.device)
        return bool(request.siblings)

    with (
        mock.patch.object(tree._Step, "has_drawn_siblings", try_all),
        mock.patch.object(tree._Step, "_reject"),
    ):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "accept_everything": accept_everything,
    "recover_from_p": recover_from_p,
    "ignore_temperature": ignore_temperature,
    "siblings_from_p": siblings_from_p,
}
