"""Proposers that fail at random, without an engine."""

import importlib.metadata
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.acceptance.chaos import faulty_proposer
from tests.acceptance.chaos.faulty_proposer import (
    FAULTS,
    RandomlyFaultyProposer,
    drawn_fault,
    faulty_environment,
    register,
)
from vllm_spec_plugin.metrics.counters import (
    BAD_PROBS,
    OUT_OF_VOCABULARY,
    RAISED,
    TOO_MANY_TOKENS,
    WRONG_COUNT,
    WRONG_TYPE,
)
from vllm_spec_plugin.proposers import registry
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.guard import GuardedProposer

REASONS = {
    "raise": RAISED,
    "no_list": RAISED,
    "out_of_vocabulary": OUT_OF_VOCABULARY,
    "negative_token": OUT_OF_VOCABULARY,
    "too_many_tokens": TOO_MANY_TOKENS,
    "float_tokens": WRONG_TYPE,
    "nan_probs": BAD_PROBS,
    "too_few_drafts": WRONG_COUNT,
}
VIEWS = [RequestView(str(i), np.arange(5, dtype=np.int32), 3, np.zeros(3), depth=3) for i in range(2)]


class Sound:
    """Drafts a token; notes what it is told."""

    num_siblings = 2

    def __init__(self) -> None:
        self.told: list[str] = []

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        return [Draft([7]) for _ in requests]

    def forget(self, request_id: str) -> None:
        self.told.append(f"forget {request_id}")


class Learning(Sound):
    """One that learns from texts that ended."""

    def finish(self, request_id: str) -> None:
        self.told.append(f"finish {request_id}")


def test_faults_come_at_their_rate_and_each_kind_as_often() -> None:
    rng = random.Random(0)
    drawn = Counter(drawn_fault(0.2, rng) for _ in range(7000))
    # 1400 +- 34 faults, 200 +- 14 of a kind; these bounds are 5 standard deviations away.
    assert 1230 <= 7000 - drawn[None] <= 1570
    assert drawn.keys() == {None, *FAULTS}
    assert all(130 <= drawn[fault] <= 270 for fault in FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guard_counts_each_kind(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty_proposer, "drawn_fault", lambda rate, rng: fault)
    errors: list[str] = []
    guarded = GuardedProposer(RandomlyFaultyProposer(Sound(), 1.0, random.Random(0)), 100, errors.append)
    assert all(not draft.token_ids for draft in guarded.propose(VIEWS))
    assert set(errors) == {REASONS[fault]}


def test_without_a_fault_nothing_is_changed() -> None:
    sound = Sound()
    faulty = RandomlyFaultyProposer(sound, 0.0, random.Random(0))
    assert faulty.propose(VIEWS) == sound.propose(VIEWS)
    assert faulty.num_siblings == 2
    faulty.forget("a")
    faulty.finish("b")
    assert sound.told == ["forget a", "forget b"]
    learning = Learning()
    RandomlyFaultyProposer(learning, 0.0, random.Random(0)).finish("c")
    assert learning.told == ["finish c"]


def test_vllm_finds_it_by_the_environment_and_it_wraps_every_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = faulty_environment(0.5, 3)
    monkeypatch.setattr(sys, "path", environment["PYTHONPATH"].split(os.pathsep) + sys.path)
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="proposer_faults")
    assert found.load() is register

    made: list[Any] = []

    def create(*arguments: Any) -> Sound:
        made.append(arguments)
        return Sound()

    monkeypatch.setattr(registry, "create_proposer", create)
    register(environment)
    config = SimpleNamespace(method="ngram")
    proposer = registry.create_proposer(config, 4, 100, None)  # type: ignore[arg-type]
    assert isinstance(proposer, RandomlyFaultyProposer)
    assert made == [(config, 4, 100, None)]
