"""At temperature 0 the output is, token for token, the output without speculation."""

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL,
    DRAFT_MODEL_OPTIMAL,
    EAGLE3,
    EAGLE3_CASCADE,
    LOOKUP,
    MEDUSA,
    MEDUSA_TREE,
    MEDUSA_TREE_DRAWN,
    MEDUSA_TREE_RANDOM,
    SUFFIX,
    TIGHT,
    Arms,
    Engine,
)
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.samples import tree_sizes
from tests.sizes import is_full

pytestmark = pytest.mark.engine

NUM_PROMPTS, LONGEST, NUM_TOKENS = 64, 600, 64
CONFIGS = {
    "suffix": SUFFIX,
    "draft_model_optimal": DRAFT_MODEL_OPTIMAL,
    "eagle3_cascade": EAGLE3_CASCADE,
    "medusa_tree_drawn": MEDUSA_TREE_DRAWN,
    "cascade": CASCADE,
}
# Trees of random sizes, and how many sizes there are at least.
NUM_SIZES = {MEDUSA_TREE_DRAWN: 4}
SHORT_OF_MEMORY = ("kv_blocks_reserved", "kv_blocks_rolled_back", "drafts_cut_for_memory")
if is_full():
    # Nothing in them that the others have not.
    CONFIGS |= {"lookup": LOOKUP, "eagle3": EAGLE3}
    CONFIGS |= {"draft_model": DRAFT_MODEL, "medusa": MEDUSA, "medusa_tree": MEDUSA_TREE}
    CONFIGS |= {"medusa_tree_random": MEDUSA_TREE_RANDOM}


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    prompts = texts.sources(reference, NUM_PROMPTS, LONGEST)
    lengths = sorted(map(len, prompts))
    assert lengths[0] < 8
    assert lengths[-1] > 400
    return prompts


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_greedy_output_survives_chunked_prompts_and_preemption(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Prompts are computed in chunks, beginnings come from the prefix cache, requests are preempted.

    In each step all books of KV blocks must agree, and drafts have slots of their own that come and go. Drafts are cut
    by the scheduler, and lack blocks for branches.
    """
    job = greedy_job(prompts, NUM_TOKENS)
    engine = Engine(config=config, check=True, random_lengths=config in NUM_SIZES, **TIGHT)
    result = arms.run(engine, job)
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), job))
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    assert min(result.accepted, result.rejected) > 100
    short = [result.metrics[f"vllm_spec_plugin:{name}_total"] for name in SHORT_OF_MEMORY]
    assert min(short) > 0
    if config in NUM_SIZES:
        sizes = tree_sizes(result)
        assert len(sizes) >= NUM_SIZES[config]
        assert {0, 1, 2} <= set.union(*sizes.values())
