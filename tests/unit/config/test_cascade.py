"""Cascades in a configuration."""

from pathlib import Path

import pytest

from tests.unit.config.cases import MEDUSA, message_of
from vllm_spec_plugin.config import (
    DraftModelConfig,
    PluginConfig,
    load_config,
    parse_config,
)

NGRAM_ITEM = {"method": "ngram"}


@pytest.mark.parametrize(
    ("proposers", "message"),
    [
        ([NGRAM_ITEM], "proposers: got a list of 1; allowed: a list of 2 to 3 proposers, each with its method"),
        ([NGRAM_ITEM] * 4, "proposers: got a list of 4; allowed: a list of 2 to 3 proposers, each with its method"),
        (NGRAM_ITEM, "proposers: got a section; allowed: a list of 2 to 3 proposers, each with its method"),
        (
            [NGRAM_ITEM, {"method": "ngrm"}],
            "proposers[1].method: got the text 'ngrm'; allowed: draft_model, medusa, ngram, suffix; "
            "did you mean ngram?",
        ),
        ([NGRAM_ITEM, {"model": "x"}], "proposers[1].method: missing; allowed: draft_model, medusa, ngram, suffix"),
        (
            [NGRAM_ITEM, {"method": "cascade", "proposers": []}],
            "proposers[1].method: got the text 'cascade'; allowed: draft_model, medusa, ngram, suffix",
        ),
        (
            [NGRAM_ITEM, NGRAM_ITEM],
            "proposers[1].method: got the text 'ngram' a second time; allowed: each method once",
        ),
        (
            [{**NGRAM_ITEM, "min_order": 0}, MEDUSA],
            "proposers[0].min_order: got 0; allowed: a whole number from 1 to 16",
        ),
        (
            [{**NGRAM_ITEM, "tree": None}, MEDUSA],
            "proposers[0].tree: unknown key (got nothing (null)); allowed: method, mode, min_order, max_order, window, "
            "draft_sampling, shared, shared_tokens, shared_scope; it belongs to proposer.proposers[0].method medusa",
        ),
        (
            [{**NGRAM_ITEM, "window": 100}, MEDUSA],
            "proposers[0].window: got 100, but proposer.proposers[0].mode is lookup, which has no window; "
            "allowed: leave it out, or set proposer.proposers[0].mode to frequency",
        ),
    ],
)
def test_a_mistake_in_a_cascade_says_where(proposers: object, message: str) -> None:
    data = {"proposer": {"method": "cascade", "proposers": proposers}}
    assert message_of(data) == f"spec.yaml: proposer.{message}"


def test_a_cascade_has_its_proposers_in_order() -> None:
    config = parse_config({"proposer": {"method": "cascade", "proposers": [MEDUSA, NGRAM_ITEM]}}, "spec.yaml")
    assert [proposer.method for proposer in config.proposers] == ["medusa", "ngram"]
    assert PluginConfig.model_validate(config.model_dump()) == config
    assert config.where(config.proposers[0], "spec.yaml") == "spec.yaml: the cascade's medusa"


def test_a_tree_in_a_cascade_fits_the_draft_length_too() -> None:
    branching = {"method": "draft_model", "model": "any", "branches": [3, 2]}
    data = {"proposer": {"method": "cascade", "proposers": [NGRAM_ITEM, branching]}, "draft_length": {"tokens": 4}}
    expected = "spec.yaml: draft_length.tokens: got 4, but proposer.proposers[1].branches has 9 tokens"
    assert message_of({**data, "draft_length": {"policy": "fixed", "tokens": 4}}).startswith(expected)
    lossy = {**data, "draft_length": {"policy": "fixed", "tokens": 9}, "verification": {"lenience": 0.5}}
    assert "the proposer drafts trees" in message_of(lossy)


def test_models_of_a_cascade_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    path = tmp_path / "cascade.yaml"
    items = "[{method: ngram}, {method: draft_model, model: draft}]"
    path.write_text(f"proposer: {{method: cascade, proposers: {items}}}")
    _, draft = load_config(path).proposers
    assert isinstance(draft, DraftModelConfig)
    assert draft.model == str(tmp_path / "draft")
