"""Cascades in a configuration."""

from pathlib import Path

from tests.unit.config.cases import MEDUSA, message_of
from vllm_spec_plugin.config import (
    DraftModelConfig,
    PluginConfig,
    load_config,
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


def test_models_of_a_cascade_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    path = tmp_path / "cascade.yaml"
    items = "[{method: ngram}, {method: draft_model, model: draft}]"
    path.write_text(f"proposer: {{method: cascade, proposers: {items}}}")
    _, draft = load_config(path).proposers
    assert isinstance(draft, DraftModelConfig)
    assert draft.model == str(tmp_path / "draft")
