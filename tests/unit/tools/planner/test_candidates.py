"""Tests the candidates, and that an engine can be started with each."""

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.planner.candidates import Memory, candidate_engines, memory_of, read_natives

DRAFT, HEAD, HEADS = (str(model_path(name)) for name in ("draft", "eagle3", "medusa"))


def test_suffixes_need_nothing() -> None:
    [engine] = candidate_engines(8)
    [candidate] = engine.candidates
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
    [engine] = candidate_engines(8, draft=draft, has_predictions=has_predictions)
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    assert methods == {**{name: name for name in members}, "cascade": None}
    config = parse_config(engine.sections, "it")
    assert [proposer.method for proposer in config.proposers] == members
    assert engine.candidates[-1].proposer == engine.proposer


def test_what_cannot_share_an_engine_has_its_own() -> None:
    natives = ({"method": "ngram"}, {"method": "eagle3", "model": HEAD})
    engines = candidate_engines(6, draft=DRAFT, medusa=HEADS, eagle3=HEAD, natives=natives, has_schemas=True)
    assert [[(one.name, one.method, one.lengths) for one in engine.candidates] for engine in engines[1:]] == [
        [("grammar", "grammar", (1, 2, 4, 6)), ("grammar and suffix", None, (1, 2, 4, 6))],
        [("eagle3", None, (1, 2, 4, 6))],
        [("vllm ngram", None, (1, 2, 4, 6))],
        [("vllm eagle3", None, (1, 2, 4, 6))],
        # As many as there are heads; a tree is drafted whole.
        [("medusa", None, (1, 2, 4))],
        [("medusa tree", None, (6,))],
    ]
    assert list(engines[-1].candidates[0].choices) == [6]


@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_every_candidate_can_be_served(tokens: int) -> None:
    natives = ({"method": "mtp"},)
    engines = [
        *candidate_engines(tokens, draft=DRAFT, medusa=HEADS, eagle3=HEAD, natives=natives),
        *candidate_engines(tokens),
        *candidate_engines(tokens, draft=DRAFT, has_predictions=True, has_schemas=True),
    ]
    for engine in engines:
        assert parse_config(engine.sections, "it").draft_length.tokens == engine.tokens
        for candidate in engine.candidates:
            parse_config({"proposer": candidate.proposer}, "it")
            assert candidate.lengths[-1] <= engine.tokens


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["vllm:eagle3"], "is not JSON"),
        (["vllm:[1]"], "has no method"),
        (
            ['vllm:{"method": "ngram", "num_speculative_tokens": 4}'],
            "--tokens is the longest draft; allowed: no num_speculative_tokens",
        ),
        (['vllm:{"method": "ngram"}', 'vllm:{"method": "ngram"}'], "each method once"),
        (["optimal"], "--arm optimal: with --recommend; allowed: vllm:JSON"),
    ],
)
def test_what_cannot_be_considered_is_refused(given: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_natives(given)


def test_each_candidate_has_its_share_of_memory() -> None:
    natives = ({"method": "eagle3", "model": HEAD}, {"method": "ngram"}, {"method": "mtp"})
    engines = candidate_engines(4, draft=DRAFT, medusa=HEADS, eagle3=HEAD, natives=natives, has_predictions=True)
    none, own = ({"dtype": "torch.float32", "kv_bytes_per_token": kv} for kv in (4096, 4608))
    found = {one.name: memory_of(one, none, own) for engine in engines for one in engine.candidates}
    assert found["suffix"] == found["prediction"] == Memory(0, 0)
    assert found["cascade"] == found["draft_model"]
    assert found["draft_model"].kv_per_token == 512
    assert found["draft_model"].weights == pytest.approx(4 * 0.9e6, rel=0.01)
    assert found["eagle3"].weights == found["vllm eagle3"].weights == pytest.approx(4 * 1.6e6, rel=0.1)
    assert [found[name].weights for name in ("vllm ngram", "vllm mtp")] == [0, None]
