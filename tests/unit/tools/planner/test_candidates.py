"""Tests the candidates, and that an engine can be started with each."""

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_tools.planner.candidates import Heads, chain_engines, tree_engine

DRAFT, HEAD = "/models/draft", "/models/head"


def test_suffixes_need_nothing() -> None:
    (engine,) = chain_engines(None, None, 8)
    (candidate,) = engine.candidates
    # Of an engine that has no other proposer nothing is asked.
    assert (candidate.name, candidate.method) == ("suffix", None)
    assert list(candidate.choices) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("draft", "has_predictions", "members"),
    [
        (DRAFT, False, ["suffix", "draft_model"]),
        (None, True, ["prediction", "suffix"]),
        (DRAFT, True, ["prediction", "suffix", "draft_model"]),
    ],
)
def test_several_proposers_share_an_engine_and_are_a_cascade(
    draft: str | None, has_predictions: bool, members: list[str]
) -> None:
    (engine,) = chain_engines(draft, None, 8, has_predictions=has_predictions)
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    assert methods == {**{name: name for name in members}, "cascade": None}
    config = parse_config(engine.sections, "it")
    assert [proposer.method for proposer in config.proposers] == members
    assert engine.candidates[-1].proposer == engine.proposer


def test_grammars_are_a_candidate_where_requests_have_schemas_also_before_suffixes() -> None:
    first, engine = chain_engines(DRAFT, None, 16, has_predictions=True, has_schemas=True)
    assert first == chain_engines(DRAFT, None, 16, has_predictions=True)[0]
    assert [(one.name, one.method, one.lengths[-1]) for one in engine.candidates] == [
        ("grammar", "grammar", 16),
        ("grammar and suffix", None, 16),
    ]
    assert [proposer.method for proposer in parse_config(engine.sections, "it").proposers] == ["grammar", "suffix"]
    assert engine.candidates[1].proposer == engine.proposer


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


def test_each_of_vllms_own_drafters_has_an_engine_before_medusas(heads: Heads) -> None:
    natives = ({"method": "ngram"}, {"method": "eagle3", "model": HEAD})
    _, *engines, last = chain_engines(None, heads, 4, natives=natives)
    assert [engine.name for engine in engines] == ["vllm ngram", "vllm eagle3"]
    assert engines[1].proposer == {"method": "vllm", "config": {"method": "eagle3", "model": HEAD}}
    assert last.name == "medusa"


def test_a_tree_is_drafted_whole(heads: Heads) -> None:
    engine = tree_engine(heads, 6)
    (candidate,) = engine.candidates
    assert (candidate.lengths, list(candidate.choices), candidate.is_tree) == ((6,), [6], True)


@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_every_candidate_can_be_served(heads: Heads, tokens: int) -> None:
    engines = [
        *chain_engines(DRAFT, heads, tokens, eagle3=HEAD, natives=({"method": "mtp"},)),
        tree_engine(heads, tokens),
        *chain_engines(None, None, tokens),
        *chain_engines(DRAFT, None, tokens, has_predictions=True, has_schemas=True),
    ]
    for engine in engines:
        assert parse_config(engine.sections, "it").draft_length.tokens == engine.tokens
        for candidate in engine.candidates:
            parse_config({"proposer": candidate.proposer}, "it")
            assert candidate.lengths[-1] <= engine.tokens
