"""Drafts from texts on vLLM's V2 runner: the scheduler drafts, vLLM verifies, outputs are those without drafts."""

import dataclasses
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import Job, Request
from tests.engine.v2.cells import run_greedy
from tests.engine.v2.drafters import Target, bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import fixed_length

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def engine(name: str, target: Target, **options: Any) -> Engine:
    """An engine with a text proposer of a shipped configuration, 4 draft tokens."""
    return dataclasses.replace(v2_engine("none", target), config=fixed_length(name), **options)


def test_greedy_outputs_do_not_depend_on_draft_lengths(target: Target, arms: Arms) -> None:
    """Lengths from 0 to 4 by request and step; prompts are computed in chunks."""
    result = run_greedy(arms, engine("suffix", target, random_lengths=True), target)
    assert min(result.accepted, result.rejected) > 30
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    assert drafts < tokens < 4 * drafts
