"""The draft model never drafts on stale or missing keys and values; test_draft_windows.py has all of its passes."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_token_ids, greedy_job
from tests.engine.jobs import CertifyRequest, Job, JobResult

pytestmark = pytest.mark.engine

NUM_TOKENS = 64


@pytest.fixture(scope="module")
def draft() -> Reference:
    """The bundled draft in transformers."""
    return Reference("draft")


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    # Pairs of one prompt share their blocks, computed in one step or found in the prefix cache.
    prompts = texts.sources(reference, 32, 600)
    return [prompt for prompt in prompts for _ in range(2)]


def assert_fresh(draft: Reference, result: JobResult, at_least: int) -> None:
    """Each recorded output is that of a forward pass over the whole text."""
    assert len(result.notes["drafting"]) >= at_least
    for text, logits in result.notes["drafting"]:
        expected = draft.logits(text)[-1]
        torch.testing.assert_close(torch.tensor(logits), expected, atol=2e-3, rtol=2e-3)


def mixed_job(prompts: Sequence[Tokens], **job: object) -> Job:
    """Greedy and sampled requests side by side."""
    params = {"max_tokens": NUM_TOKENS, "ignore_eos": True}
    requests = [CertifyRequest(prompt, params | {"temperature": float(i % 2)}) for i, prompt in enumerate(prompts)]
    return dataclasses.replace(Job(requests), **job)  # type: ignore[arg-type]


def assert_greedy(arms: Arms, reference: Reference, prompts: Sequence[Tokens], result: JobResult) -> None:
    """The greedy outputs of `mixed_job` are those without speculation."""
    plain = arms.run(Engine(), greedy_job(prompts[::2], NUM_TOKENS))
    assert_same_token_ids(reference, prompts[::2], result.tokens()[::2], plain.tokens())


@pytest.mark.parametrize(("fault", "options"), [("idle", {}), ("out_of_memory", TIGHT)])
def test_steps_without_drafts_are_caught_up_with(
    fault: str, options: dict[str, Any], arms: Arms, reference: Reference, draft: Reference, prompts: list[Tokens]
) -> None:
    """Nobody wants a draft in two steps of three, or every seventh pass fails for want of memory.

    The draft sees the whole text, and greedy outputs are as without.
    """
    result = arms.run(Engine(config=DRAFT_MODEL, **options), mixed_job(prompts, record_drafting=0.1, fault=fault))
    assert min(result.accepted, result.rejected) > 100
    assert_fresh(draft, result, 100)
    assert_greedy(arms, reference, prompts, result)
    errors = result.metrics.get("vllm_spec_plugin:proposer_errors_total{reason=raised}", 0)
    assert errors > 10 if fault == "out_of_memory" else not errors
