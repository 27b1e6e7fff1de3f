"""Cascades in a configuration."""

from tests.unit.config.cases import MEDUSA, message_of
from vllm_spec_plugin.config import (
    PluginConfig,
    parse_config,
)

NGRAM_ITEM = {"method": "ngram"}


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
