"""At temperature 0 the output is, token for token, the output without speculation."""

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL,
    DRAFT_MODEL_OPTIMAL,
    FREQUENCY,
    LOOKUP,
    MEDUSA,
    MEDUSA_TREE,
    MEDUSA_TREE_RANDOM,
    MULTI_DRAFT,
    SUFFIX,
    TIGHT,
    Arms,
    Engine,
)
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.sizes import is_full

pytestmark = pytest.mark.engine

NUM_PROMPTS, LONGEST, NUM_TOKENS = 64, 600, 64
CONFIGS = {
    "lookup": LOOKUP,
    "frequency": FREQUENCY,
    "suffix": SUFFIX,
    "draft_model_optimal": DRAFT_MODEL_OPTIMAL,
    "medusa_tree": MEDUSA_TREE,
    "multi_draft": MULTI_DRAFT,
    "cascade": CASCADE,
}
# How often it drafts depends on what steps take.
MEASURED = {DRAFT_MODEL_OPTIMAL}
SHORT_OF_MEMORY = ("kv_blocks_reserved", "kv_blocks_rolled_back", "drafts_cut_for_memory")
if is_full():
    # Nothing in them that the others have not.
    CONFIGS |= {"draft_model": DRAFT_MODEL, "medusa": MEDUSA, "medusa_tree_random": MEDUSA_TREE_RANDOM}


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    prompts = texts.sources(reference, NUM_PROMPTS, LONGEST)
    lengths = sorted(map(len, prompts))
    assert lengths[0] < 8
    assert lengths[-1] > 400
    return prompts


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_greedy_output_is_that_without_speculation(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """All prompts in one batch, computed whole."""
    job = greedy_job(prompts, NUM_TOKENS)
    result = arms.run(Engine(config=config), job)
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), job))
    assert result.preemptions == 0
    assert min(result.accepted, result.rejected) > (0 if config in MEASURED else 100)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_greedy_output_survives_chunked_prompts_and_preemption(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Prompts are computed in chunks, beginnings come from the prefix cache, requests are preempted.

    In each step all books of KV blocks must agree, and drafts have slots of their own that come and go.
    """
    job = greedy_job(prompts, NUM_TOKENS)
    result = arms.run(Engine(config=config, check=True, **TIGHT), job)
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), job))
    # Branches ask for so many slots that too few requests are admitted for any to be preempted.
    assert result.preemptions > 0 or config == MULTI_DRAFT
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert min(result.accepted, result.rejected) > (0 if config in MEASURED else 100)
    short = [result.metrics[f"vllm_spec_plugin:{name}_total"] for name in SHORT_OF_MEMORY]
    assert config in MEASURED or min(short) > 0
