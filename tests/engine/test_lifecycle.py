"""Weights that are lost come back, the drafter's with the target's: outputs and acceptance are as before."""

import pytest

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, EAGLE3, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_token_ids, greedy_job
from tests.engine.jobs import hooked
from tests.engine.lifecycle import FOLDER
from tests.engine.ways import VLLMS_EAGLE3
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.sizes import is_full

pytestmark = pytest.mark.engine

NUM_TOKENS = 48
OPTIONS = (("weight_transfer_config", (("backend", FOLDER),)),)
ENGINES = {"eagle3": Engine(config=EAGLE3, options=OPTIONS)}
if is_full():
    ENGINES |= {
        "vLLM's draft_model": Engine(config=native(STOCK_DRAFT_MODEL), options=OPTIONS),
        "draft_model": Engine(config=DRAFT_MODEL, options=OPTIONS),
        "draft_model, compiled": Engine(config=DRAFT_MODEL, compiled=True, options=OPTIONS),
        "eagle3, compiled": Engine(config=EAGLE3, compiled=True, options=OPTIONS),
        "vLLM's eagle3": Engine(config=native(VLLMS_EAGLE3), options=OPTIONS),
    }


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 16, 300)


@pytest.mark.parametrize("name", ENGINES)
def test_lost_weights_come_back(arms: Arms, reference: Reference, prompts: list[Tokens], name: str) -> None:
    engine, job = ENGINES[name], greedy_job(prompts, NUM_TOKENS)
    plain, before = arms.run(Engine(), job), arms.run(engine, job)
    assert before.accepted > 200
    lost = arms.run(engine, hooked(job, weights="drafter lost"))
    assert lost.accepted < before.accepted / 4
    for event in ("draft update", "reload"):
        after = arms.run(engine, hooked(job, weights=event))
        assert after.accepted == pytest.approx(before.accepted, rel=0.05), event
        assert_same_token_ids(reference, prompts, after.tokens(), plain.tokens())
