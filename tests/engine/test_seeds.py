"""A request with a seed has one output, beside any other requests and with any draft length."""

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    CONTENDED,
    DRAFT_MODEL,
    LOOKUP,
    MEDUSA_TREE_DRAWN,
    TIGHT,
    Arms,
    Engine,
)
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job
from tests.fixed_length import fixed_length
from tests.sizes import is_full

pytestmark = pytest.mark.engine

NUM_TOKENS = 48


@pytest.fixture(scope="module")
def seeded(reference: Reference) -> list[CertifyRequest]:
    """Texts that repeat and texts that don't, short ones and some that are computed in chunks."""
    prompts: list[Tokens] = [*texts.repetitive(reference), *texts.sources(reference, 6, 400)]
    prompts.append(tuple(reference.encode("import")))
    prompts.append(tuple(range(300, 330)))
    params = {"temperature": 1.0, "top_p": 0.9, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    return [CertifyRequest(prompt, params | {"seed": 1000 + i}) for i, prompt in enumerate(prompts)]


@pytest.fixture(scope="module")
def background(reference: Reference) -> list[CertifyRequest]:
    """Requests of all kinds, that come and go."""
    kinds = (
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.8, "seed": 7, "top_k": 50},
        {"temperature": 1.0, "min_p": 0.02, "repetition_penalty": 1.2},
    )
    prompts = texts.sources(reference, 60, 200)
    return [
        CertifyRequest(prompt, kinds[i % len(kinds)] | {"max_tokens": 5 + 7 * i % 60, "ignore_eos": True})
        for i, prompt in enumerate(prompts)
    ]


def without_drafts(arms: Arms, engine: Engine, requests: list[CertifyRequest]) -> list[list[int]]:
    """Outputs of the requests together on the same server, none of them drafted for."""
    off = [CertifyRequest(request.prompt, request.params | {"extra_args": {"spec": "off"}}) for request in requests]
    result = arms.run(engine, Job(off))
    assert result.accepted + result.rejected == 0
    return result.tokens()


def among(
    arms: Arms, engine: Engine, requests: list[CertifyRequest], background: list[CertifyRequest]
) -> list[list[int]]:
    """Outputs of the requests in one batch with others, at every sixth place."""
    job, places = list(background), range(0, 6 * len(requests), 6)
    for place, request in zip(places, requests, strict=True):
        job.insert(place, request)
    result = arms.run(engine, Job(job, torch_seed=5))
    assert result.accepted > 50
    return [result.tokens()[place] for place in places]


CONFIGS = {"medusa_tree_drawn": MEDUSA_TREE_DRAWN, "cascade": CASCADE}
if is_full():
    # Nothing in them that the others have not.
    CONFIGS |= {"lookup": LOOKUP, "draft_model": DRAFT_MODEL}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_seeded_output_is_that_without_drafts(
    config: str, arms: Arms, seeded: list[CertifyRequest], background: list[CertifyRequest]
) -> None:
    """In a mixed batch. Exact comparison; no false alarms but by rounding."""
    engine = Engine(config=config)
    assert among(arms, engine, seeded, background) == without_drafts(arms, engine, seeded)


@pytest.mark.full  # Cascades in a mixed batch are above, with fewer seeds.
def test_seeded_output_does_not_depend_on_contention(
    arms: Arms, reference: Reference, background: list[CertifyRequest]
) -> None:
    """200 seeds, in a mixed batch that is drafted for in turn.

    A token in about 10^6 differs by rounding: one run in about 300 fails by chance.
    """
    engine = Engine(config=CONTENDED, **TIGHT | {"num_blocks": 40})
    prompts = texts.sources(reference, 200, 80)
    params = {"temperature": 1.0, "max_tokens": 14, "ignore_eos": True}
    seeded = [CertifyRequest(prompt, params | {"seed": seed}) for seed, prompt in enumerate(prompts)]
    mixed_batch = arms.run(
        engine, Job([request for pair in zip(seeded, background * 4, strict=False) for request in pair])
    )
    assert mixed_batch.tokens()[::2] == without_drafts(arms, engine, seeded)
    assert min(mixed_batch.accepted, mixed_batch.rejected) > 500
    assert mixed_batch.metrics["vllm_spec_plugin:drafts_cut_for_memory_total"] > 200


def test_seeded_output_is_the_same_with_other_draft_lengths_and_chunked_prompts(
    arms: Arms, seeded: list[CertifyRequest], background: list[CertifyRequest]
) -> None:
    """4 draft tokens, and 2 where prompts are computed in chunks of at most 64 tokens; alone, too."""
    expected = without_drafts(arms, Engine(config=LOOKUP), seeded)
    chunked = Engine(config=fixed_length("ngram", 2), max_num_seqs=16, max_num_batched_tokens=64, num_blocks=64)
    assert among(arms, chunked, seeded, background) == expected
    for engine in (Engine(config=LOOKUP), chunked):
        assert [arms.run(engine, Job([request])).tokens()[0] for request in seeded] == expected


def test_seeded_output_does_not_depend_on_whether_there_were_drafts(arms: Arms, seeded: list[CertifyRequest]) -> None:
    """Half of the drafts are lost to a fault of the proposer; the same tokens are drawn without them."""
    engine = Engine(config=LOOKUP)
    result = arms.run(engine, Job(seeded, fault="raise"))
    assert result.metrics["vllm_spec_plugin:proposer_errors_total{reason=raised}"] > 10
    assert result.tokens() == without_drafts(arms, engine, seeded)


def test_other_seeds_give_other_outputs(arms: Arms, seeded: list[CertifyRequest]) -> None:
    """So that the comparisons above say something."""
    engine = Engine(config=LOOKUP)
    others = [CertifyRequest(request.prompt, request.params | {"seed": 1}) for request in seeded]
    pairs = zip(without_drafts(arms, engine, others), without_drafts(arms, engine, seeded), strict=True)
    assert all(a != b for a, b in pairs)
