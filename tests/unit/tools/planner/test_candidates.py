"""What could be switched on, and that an engine can be started with it."""

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.planner.candidates import Heads, chain_engines, tree_engine

DRAFT, HEAD = "/models/draft", "/models/head"


@pytest.fixture(scope="module")
def heads() -> Heads:
    folder = str(model_path("medusa"))
    return Heads(folder, read_heads_config(folder))


def test_n_grams_and_suffixes_need_nothing() -> None:
    engine, other = chain_engines(None, None, 8)
    (candidate,) = engine.candidates
    assert candidate.name == "ngram"
    # Of an engine that has no other proposer nothing is asked.
    assert candidate.method is None
    assert list(candidate.choices) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [(one.name, one.method) for one in other.candidates] == [("suffix", None)]


def test_predictions_are_considered_where_there_are_any() -> None:
    _, engine = chain_engines(None, None, 8, has_predictions=True)
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    assert methods == {"prediction": "prediction", "suffix": "suffix"}
    config = parse_config(engine.sections, "it")
    assert [proposer.method for proposer in config.proposers] == ["prediction", "suffix"]


def test_a_draft_model_shares_the_engine_of_n_grams_and_is_a_cascade_with_them() -> None:
    engine, _ = chain_engines(DRAFT, None, 8)
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    assert methods == {"ngram": "ngram", "draft_model": "draft_model", "cascade": None}
    config = parse_config(engine.sections, "it")
    assert [proposer.method for proposer in config.proposers] == ["ngram", "draft_model"]
    assert engine.candidates[2].proposer == engine.proposer


def test_heads_have_an_engine_of_their_own_and_draft_no_more_than_there_are(heads: Heads) -> None:
    *_, engine = chain_engines(DRAFT, heads, 8)
    assert engine.tokens == 4
    assert engine.candidates[0].lengths == (1, 2, 4)


def test_an_eagle3_head_has_an_engine_of_its_own_before_medusas(heads: Heads) -> None:
    """The size of Medusa's tree follows from the engine measured last."""
    *_, engine, last = chain_engines(None, heads, 8, eagle3=HEAD)
    assert [(one.name, one.method, one.lengths) for one in engine.candidates] == [("eagle3", None, (1, 2, 4, 8))]
    assert engine.proposer["model"] == HEAD
    assert last.name == "medusa"


def test_a_tree_is_drafted_whole(heads: Heads) -> None:
    engine = tree_engine(heads, 6)
    (candidate,) = engine.candidates
    assert (candidate.lengths, list(candidate.choices), candidate.is_tree) == ((6,), [6], True)


@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_every_candidate_can_be_served(heads: Heads, tokens: int) -> None:
    engines = [
        *chain_engines(DRAFT, heads, tokens, eagle3=HEAD),
        tree_engine(heads, tokens),
        *chain_engines(None, None, tokens),
    ]
    for engine in engines:
        assert parse_config(engine.sections, "it").draft_length.tokens == engine.tokens
        for candidate in engine.candidates:
            parse_config({"proposer": candidate.proposer}, "it")
            assert candidate.lengths[-1] <= engine.tokens
