"""vLLM's drafters in steps after which nobody drafts: they do not run, and draft afterwards as if they had."""

import dataclasses
import json
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.v2.drafters import DRAFTERS
from tests.fixed_length import native
from tests.sizes import is_full

pytestmark = pytest.mark.engine

K = 4
NAMES = ("draft_model", "eagle3") if is_full() else ("draft_model",)
CASES = [(name, runner) for runner in ("v1", "v2") for name in NAMES]


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return [*texts.repetitive(reference)[:2], *texts.sources(reference, 4, 90)]


def engine(name: str, runner: str, **more: Any) -> Engine:
    """An engine with drafts of `K` tokens for each request that may have some."""
    usual: dict[str, Any] = {"max_num_seqs": 48, "max_num_batched_tokens": 256, "num_blocks": 384}
    return Engine(config=native(json.dumps(DRAFTERS[name]), K), runner=runner, **usual | more)


def job(prompts: list[Tokens], **options: Any) -> Job:
    params = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True, "extra_args": options or None}
    return Job([CertifyRequest(prompt, params) for prompt in prompts])


def counted(result: JobResult, name: str) -> float:
    return sum(count for key, count in result.metrics.items() if key.startswith(f"vllm_spec_plugin:{name}_total"))


@pytest.mark.parametrize(("name", "runner"), CASES)
def test_a_drafter_rests_while_nobody_drafts_and_drafts_after_it_on_what_it_finds_in_the_prefix_cache(
    name: str, runner: str, arms: Arms, prompts: list[Tokens]
) -> None:
    """Prompts are served with `spec: off`, and then again with drafts, on blocks that the drafter has not computed.

    A draft model computes them, and as many of its tokens are accepted as by an engine that never rested. A head drafts
    without them.
    """
    rested = engine(name, runner)
    off = arms.run(rested, job(prompts, spec="off"))
    assert off.notes["passes"] == []
    assert counted(off, "drafter_rests") >= 12
    assert not counted(off, "drafter_passes")
    on = arms.run(rested, job(prompts))
    fresh = arms.run(dataclasses.replace(rested, num_blocks=385), job(prompts))
    assert off.tokens() == on.tokens() == fresh.tokens()
    assert on.metrics["vllm:prefix_cache_hits"] > fresh.metrics["vllm:prefix_cache_hits"]
    assert min(fresh.accepted, fresh.rejected) > 10
    if name == "draft_model":
        assert (on.accepted, on.rejected) == (fresh.accepted, fresh.rejected)
        assert counted(on, "caught_up_tokens") > 100
        # A pass more where it catches up; its length is that of all gaps.
        assert max(on.notes["passes"]) >= counted(on, "caught_up_tokens") / len(prompts)
    else:
        assert on.accepted > 0


@pytest.mark.parametrize("length", [1, 2, K])
def test_on_the_v2_runner_a_draft_model_makes_as_many_passes_as_tokens_are_asked(
    length: int, arms: Arms, prompts: list[Tokens]
) -> None:
    """The counter is behind by the last step."""
    result = arms.run(engine("draft_model", "v2"), job(prompts[:1], spec_tokens=length))
    assert counted(result, "drafter_passes") <= len(result.notes["passes"]) <= 12 * length
    steps = sum(tokens > 1 for tokens in result.notes["passes"])
    assert len(result.notes["passes"]) - steps >= (length - 1) * (steps - 2)
