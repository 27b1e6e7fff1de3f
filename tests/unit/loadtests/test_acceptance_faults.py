"""Proposers that fail at random, without an engine."""

import importlib.metadata
import os
import random
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.acceptance.chaos.faulty_proposer import (
    FAULTS,
    REASONS,
    RandomlyFaultyProposer,
    faulty_environment,
    register,
)
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.v1.proposers import create

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


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guard_counts_each_kind(fault: str) -> None:
    errors: list[str] = []
    # At this rate all steps fail; the choice is made.
    rng: Any = SimpleNamespace(random=lambda: 0.5, choice=lambda names: fault)
    guarded = GuardedProposer(RandomlyFaultyProposer(Sound(), 1.0, rng), 100, errors.append)
    assert all(not draft.token_ids for draft in guarded.propose(VIEWS))
    assert set(errors) == {REASONS[fault]}


@pytest.mark.parametrize(("sound", "told"), [(Sound(), "forget b"), (Learning(), "finish b")])
def test_without_a_fault_nothing_is_changed(sound: Sound, told: str) -> None:
    faulty = RandomlyFaultyProposer(sound, 0.0, random.Random(0))
    assert faulty.propose(VIEWS) == sound.propose(VIEWS)
    assert faulty.num_siblings == 2
    faulty.forget("a")
    faulty.finish("b")
    assert sound.told == ["forget a", told]


def test_vllm_finds_it_by_the_environment_and_it_wraps_every_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = faulty_environment(0.5, 3)
    monkeypatch.setattr(sys, "path", environment["PYTHONPATH"].split(os.pathsep) + sys.path)
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="proposer_faults")
    assert found.load() is register
    monkeypatch.setattr(create, "create_proposer", lambda *arguments: Sound())
    register(environment)
    config: Any = SimpleNamespace(method="ngram")
    proposer: Any = create.create_proposer(config, 4, 100, None)
    assert isinstance(proposer, RandomlyFaultyProposer)
