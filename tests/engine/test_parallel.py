"""Two tensor-parallel ranks give the outputs of one, and a fault on one of them costs drafts only."""

import dataclasses
import os
import time

import pytest

from tests.engine import texts
from tests.engine.arms import TWO_RANKS, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_outputs, greedy_job
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.kinds import all_kinds, off, run_plain, seeded
from tests.engine.test_exactness import is_own
from tests.engine.ways import WAYS
from tests.sizes import is_full
from vllm_spec_plugin.metrics.counters import RANKS_DIFFER
from vllm_spec_tools.engines.engine_child import EngineError

pytestmark = [
    pytest.mark.engine,
    pytest.mark.whole_machine,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores"),
]

# In the full run all ways, each of which says whether a rank drafts, or the scheduler.
NAMES = list(WAYS) if is_full() else ["cascade"]
FAULTS = ["raise_early", "other_tokens", *(["raise", "nan_probs", "too_few_drafts"] if is_full() else [])]
DIFFER = f"vllm_spec_plugin:proposer_errors_total{{reason={RANKS_DIFFER}}}"


def on_two(name: str, options: tuple[tuple[str, object], ...] = TWO_RANKS) -> Engine:
    """The engine of a way to draft on two ranks; each rank checks its own blocks only where one draws lengths."""
    return dataclasses.replace(WAYS[name], options=options)


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 24, 300)


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_give_the_outputs_of_one(name: str, arms: Arms, reference: Reference) -> None:
    """Greedy outputs are those without speculation; seeded ones those of one rank without drafts."""
    one, two = dataclasses.replace(WAYS[name], options=()), on_two(name)
    greedy = all_kinds(arms, reference, one)[::2]
    result = arms.run(two, Job(greedy))
    assert_same_outputs(reference, greedy, result, run_plain(arms, one, greedy))
    assert min(result.accepted, result.rejected) > 50
    assert not result.metrics[DIFFER]
    if is_own(one):
        requests = seeded(greedy[::3])
        result, plain = arms.run(two, Job(requests)), arms.run(one, Job(off(requests)))
        assert_same_outputs(reference, requests, result, plain)
        assert min(result.accepted, result.rejected) > 10
        assert not result.metrics[DIFFER]


@pytest.mark.full  # The scheduler drafts, once.
def test_two_stages_on_v2_change_no_output(arms: Arms, reference: Reference) -> None:
    stages = on_two("suffix on V2", (("pipeline_parallel_size", 2), ("distributed_executor_backend", "mp")))
    requests = all_kinds(arms, reference, WAYS["suffix on V2"])
    result = arms.run(stages, Job(requests))
    assert_same_outputs(reference, requests, result, run_plain(arms, WAYS["suffix on V2"], requests))
    assert min(result.accepted, result.rejected) > 10


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_on_one_rank_leaves_the_output_alone(
    fault: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Drafts that the ranks do not agree on are dropped, others go on."""
    job = greedy_job(prompts, 32, f"{fault}@1")
    result = arms.run(on_two("cascade"), job)
    assert_same_outputs(reference, job.requests, result, arms.run(Engine(), greedy_job(prompts, 32)))
    assert result.metrics[DIFFER] > 2
    assert result.accepted > 20


def test_another_q_on_one_rank_is_noticed(arms: Arms, prompts: list[Tokens]) -> None:
    """Only sampled requests without a seed have drafts with q; with another q the ranks' outputs would part."""
    params = {"temperature": 1.0, "max_tokens": 32, "ignore_eos": True}
    job = Job([CertifyRequest(prompt, params) for prompt in prompts], fault="other_q@1")
    result = arms.run(on_two("cascade"), job)
    assert [len(tokens) for tokens in result.tokens()] == [32] * len(prompts)
    assert result.metrics[DIFFER] > 2
    assert result.accepted > 20


def test_fault_of_one_rank_within_a_pass_ends_the_engine_soon_and_says_why(arms: Arms, prompts: list[Tokens]) -> None:
    """The other rank waits in the pass; nothing can call it back."""
    start = time.monotonic()
    with pytest.raises(EngineError):
        arms.run(on_two("cascade"), greedy_job(prompts, 32, "raise_in_pass@1"))
    assert time.monotonic() - start < 120
    assert "failed on one tensor-parallel rank only" in arms.log(on_two("cascade"))
