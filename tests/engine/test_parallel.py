"""Two tensor-parallel ranks give the outputs of one, and a fault on one of them costs drafts only."""

import dataclasses
import os
import time
from pathlib import Path

import pytest
import yaml

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL,
    EAGLE3,
    LOOKUP,
    MEDUSA_TREE,
    MEDUSA_TREE_DRAWN,
    SUFFIX_SHARED,
    TIGHT,
    TWO_RANKS,
    Arms,
    Engine,
)
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.v2.cells import run_greedy
from tests.engine.v2.drafters import bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.sizes import is_full
from vllm_spec_plugin.metrics.counters import RANKS_DIFFER
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.engine_child import EngineError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.whole_machine,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores"),
]

CONFIGS = {"cascade": CASCADE}
SHARED: dict[str, str] = {}
FAULTS = ["raise_early", "other_tokens"]
if is_full():
    # Each rank has its own order of a set's texts, here of the requests that end in a step.
    SHARED["suffix_shared"] = SUFFIX_SHARED
    # Nothing in them that the others have not.
    CONFIGS |= {"eagle3": EAGLE3, "lookup": LOOKUP, "draft_model": DRAFT_MODEL, "medusa_tree": MEDUSA_TREE}
    CONFIGS |= {"medusa_tree_drawn": MEDUSA_TREE_DRAWN}
    FAULTS += ["raise", "nan_probs", "too_few_drafts"]
# Accepted tokens with a fault, where few are drafted: of later requests only, and of sampled text.
MIN_ACCEPTED = {EAGLE3: 5, LOOKUP: 0}
DIFFER = f"vllm_spec_plugin:proposer_errors_total{{reason={RANKS_DIFFER}}}"


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 24, 300)


def seeded_job(prompts: list[Tokens], num_tokens: int) -> Job:
    """All prompts at temperature 1, each with a seed."""
    params = {"temperature": 1.0, "max_tokens": num_tokens, "ignore_eos": True}
    return Job([CertifyRequest(prompt, {**params, "seed": i}) for i, prompt in enumerate(prompts)])


def two_ranks(config: str) -> Engine:
    """Two ranks, prompts in chunks, and too little memory for all requests."""
    return Engine(config=config, check=True, options=TWO_RANKS, **TIGHT)


@pytest.mark.parametrize("config", [*CONFIGS.values(), *SHARED.values()], ids=[*CONFIGS, *SHARED])
def test_two_ranks_give_the_outputs_of_one(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Greedy outputs are those without speculation; seeded ones those of one rank, but for rounding."""
    greedy, seeded = greedy_job(prompts, 32), seeded_job(prompts, 32)
    result = arms.run(two_ranks(config), greedy)
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), greedy))
    assert min(result.accepted, result.rejected) > 50
    assert not result.metrics[DIFFER]
    result = arms.run(two_ranks(config), seeded)
    assert result.tokens() == arms.run(Engine(config=LOOKUP), seeded).tokens()
    assert result.accepted > 0
    assert result.rejected > 10
    assert not result.metrics[DIFFER]


@pytest.mark.full  # The ranks run vLLM's code.
def test_two_ranks_give_the_outputs_of_one_with_a_drafter_of_vllms_own(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Draft lengths differ between requests and steps."""
    config = native(STOCK_DRAFT_MODEL)
    engine = Engine(config=config, random_lengths=True, options=TWO_RANKS, **TIGHT)
    result = arms.run(engine, greedy_job(prompts, 32))
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), greedy_job(prompts, 32)))
    assert min(result.accepted, result.rejected) > 50


STAGES = "pipeline_parallel_size"


@pytest.mark.full  # What it shows is tested without engines.
@pytest.mark.parametrize(
    ("method", "option"), [("suffix", "tensor_parallel_size"), ("medusa", "tensor_parallel_size"), ("suffix", STAGES)]
)
def test_on_the_v2_runner_two_ranks_or_stages_change_no_output(
    method: str, option: str, arms: Arms, reference: Reference, tmp_path: Path
) -> None:
    """The scheduler drafts from texts, once; heads draft on each rank."""
    target, config = bundled_target(reference), tmp_path / "plugin.yaml"
    proposer = {"method": method} | ({"model": str(model_path("medusa"))} if method == "medusa" else {})
    config.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": 3}}))
    options = ((option, 2), ("distributed_executor_backend", "mp"))
    engine = dataclasses.replace(v2_engine("none", target), config=str(config), random_lengths=True, options=options)
    result = run_greedy(arms, engine, target)
    assert min(result.accepted, result.rejected) > 10


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("config", CONFIGS)
def test_fault_on_one_rank_leaves_the_output_alone(
    config: str, fault: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Drafts that the ranks do not agree on are dropped, others go on: of a head, those of later requests only."""
    plain = arms.run(Engine(), greedy_job(prompts, 32))
    result = arms.run(two_ranks(CONFIGS[config]), greedy_job(prompts, 32, f"{fault}@1"))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.metrics[DIFFER] > 2
    assert result.accepted > MIN_ACCEPTED.get(CONFIGS[config], 20)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_another_q_on_one_rank_is_noticed(config: str, arms: Arms, prompts: list[Tokens]) -> None:
    """Only sampled requests without a seed have drafts with q; with another q the ranks' outputs would part."""
    params = {"temperature": 1.0, "max_tokens": 32, "ignore_eos": True}
    result = arms.run(two_ranks(config), Job([CertifyRequest(prompt, params) for prompt in prompts], fault="other_q@1"))
    assert [len(tokens) for tokens in result.tokens()] == [32] * len(prompts)
    assert result.metrics[DIFFER] > 2
    assert result.accepted > MIN_ACCEPTED.get(config, 20)


def test_fault_of_one_rank_within_a_pass_ends_the_engine_soon_and_says_why(arms: Arms, prompts: list[Tokens]) -> None:
    """The other rank waits in the pass; nothing can call it back."""
    start = time.monotonic()
    with pytest.raises(EngineError):
        arms.run(two_ranks(CASCADE), greedy_job(prompts, 32, "raise_in_pass@1"))
    assert time.monotonic() - start < 120
    assert "failed on one tensor-parallel rank only" in arms.log(two_ranks(CASCADE))
