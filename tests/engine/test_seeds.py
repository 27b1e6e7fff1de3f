"""A request with a seed has one output, in whatever company and however far is drafted."""

import pytest

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, FREQUENCY, LOOKUP, MEDUSA_TREE, MEDUSA_TREE_DRAWN, MULTI_DRAFT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import Job, Request
from tests.fixed_length import fixed_length

pytestmark = pytest.mark.engine

NUM_TOKENS = 48


@pytest.fixture(scope="module")
def seeded(reference: Reference) -> list[Request]:
    """Texts that repeat and texts that don't, short ones and some that are computed in chunks."""
    prompts: list[Tokens] = [*texts.repetitive(reference), *texts.sources(reference, 6, 400)]
    prompts.append(tuple(reference.encode("import")))
    prompts.append(tuple(range(300, 330)))
    params = {"temperature": 1.0, "top_p": 0.9, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    return [Request(prompt, params | {"seed": 1000 + i}) for i, prompt in enumerate(prompts)]


@pytest.fixture(scope="module")
def company(reference: Reference) -> list[Request]:
    """Requests of all kinds, that come and go."""
    kinds = (
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.8, "seed": 7, "top_k": 50},
        {"temperature": 1.0, "min_p": 0.02, "repetition_penalty": 1.2},
    )
    prompts = texts.sources(reference, 60, 200)
    return [
        Request(prompt, kinds[i % len(kinds)] | {"max_tokens": 5 + 7 * i % 60, "ignore_eos": True})
        for i, prompt in enumerate(prompts)
    ]


def alone(arms: Arms, engine: Engine, requests: list[Request]) -> list[list[int]]:
    """Outputs of the requests run one after another."""
    return [arms.run(engine, Job([request])).tokens()[0] for request in requests]


def among(arms: Arms, engine: Engine, requests: list[Request], company: list[Request]) -> list[list[int]]:
    """Outputs of the requests in one batch with others, at every sixth place."""
    job, places = list(company), range(0, 6 * len(requests), 6)
    for place, request in zip(places, requests, strict=True):
        job.insert(place, request)
    result = arms.run(engine, Job(job, torch_seed=5))
    assert result.accepted > 50
    return [result.tokens()[place] for place in places]


CONFIGS = {
    "lookup": LOOKUP,
    "frequency": FREQUENCY,
    "draft_model": DRAFT_MODEL,
    "medusa_tree": MEDUSA_TREE,
    "medusa_tree_drawn": MEDUSA_TREE_DRAWN,
    "multi_draft": MULTI_DRAFT,
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_seeded_output_is_the_same_alone_and_in_a_mixed_batch(
    config: str, arms: Arms, seeded: list[Request], company: list[Request]
) -> None:
    """Exact comparison; no false alarms but by rounding."""
    engine = Engine(config=config)
    assert among(arms, engine, seeded, company) == alone(arms, engine, seeded)


def test_seeded_output_is_the_same_with_other_draft_lengths_and_chunked_prompts(
    arms: Arms, seeded: list[Request], company: list[Request]
) -> None:
    """4 draft tokens, 6, and 2 where prompts are computed in chunks of at most 64 tokens."""
    expected = among(arms, Engine(config=LOOKUP), seeded, company)
    longer = Engine(config=fixed_length("ngram", 6))
    assert among(arms, longer, seeded, company) == expected
    chunked = Engine(config=fixed_length("ngram", 2), max_num_seqs=16, max_num_batched_tokens=64, num_blocks=64)
    assert among(arms, chunked, seeded, company) == expected
    assert alone(arms, chunked, seeded) == expected


def test_seeded_output_does_not_depend_on_whether_there_were_drafts(arms: Arms, seeded: list[Request]) -> None:
    """Half of the drafts are lost to a fault of the proposer; the same tokens are drawn without them."""
    engine = Engine(config=LOOKUP)
    result = arms.run(engine, Job(seeded, fault="raise"))
    assert result.metrics["vllm_spec_plugin:proposer_errors_total{reason=raised}"] > 10
    assert result.tokens() == alone(arms, engine, seeded)


def test_other_seeds_give_other_outputs(arms: Arms, seeded: list[Request]) -> None:
    """So that the comparisons above say something."""
    engine = Engine(config=LOOKUP)
    others = [Request(request.prompt, request.params | {"seed": 1}) for request in seeded]
    assert all(a != b for a, b in zip(alone(arms, engine, others), alone(arms, engine, seeded), strict=True))
