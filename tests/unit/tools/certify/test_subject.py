"""The engines of a certification."""

import json
from pathlib import Path

import pytest

from vllm_spec_plugin.config import load_config, parse_config
from vllm_spec_plugin.register import modes
from vllm_spec_tools.certify import subject
from vllm_spec_tools.certify.subject import AS_GIVEN, FORCED, TIGHT, at_random_lengths, plugin_subject, stock_subject

CONFIGS = Path(__file__).parents[4] / "configs"


@pytest.mark.parametrize("name", ["ngram", "draft_model", "cascade", "medusa_tree", "vllm"])
def test_random_lengths_keep_the_proposers_and_the_maximum(name: str) -> None:
    config = load_config(CONFIGS / f"{name}.yaml")
    again = parse_config(at_random_lengths(config), name)
    assert again.draft_length.policy == "random"
    assert again.draft_length.tokens == config.draft_length.tokens
    assert (again.proposer, again.verification) == (config.proposer, config.verification)


def test_a_policy_that_may_draft_little_is_tested_with_random_lengths_as_well(tmp_path: Path) -> None:
    path = CONFIGS / "suffix.yaml"
    found = plugin_subject(path, tmp_path)
    assert set(found.engines) == {FORCED, TIGHT, AS_GIVEN}
    assert found.engines[AS_GIVEN] == (str(path), load_config(path).draft_length.tokens)
    assert {load_config(Path(found.engines[label][0])).draft_length.policy for label in (FORCED, TIGHT)} == {"random"}


def test_fixed_lengths_and_vllms_own_are_tested_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "fixed.yaml"
    path.write_text("proposer: {method: ngram}\ndraft_length: {policy: fixed, tokens: 3}\n")
    assert plugin_subject(path, tmp_path).engines == {AS_GIVEN: (str(path), 3), TIGHT: (str(path), 3)}
    stock = stock_subject(json.dumps({"method": "ngram", "num_speculative_tokens": 5}))
    assert {label: most for label, (_, most) in stock.engines.items()} == {AS_GIVEN: 5, TIGHT: 5}
    assert stock.by_vllm


def test_a_draft_is_accepted_whole_at_the_depth_of_its_tree(tmp_path: Path) -> None:
    """Only the number of tokens is known for an automatic tree."""
    path = tmp_path / "tree.yaml"
    medusa = load_config(CONFIGS / "medusa_tree.yaml").model_dump(mode="json", include={"proposer"})["proposer"]
    path.write_text(json.dumps({"proposer": medusa | {"tree": [[0], [1], [0, 0], [1, 0]]}}))
    assert plugin_subject(path, tmp_path).engines[AS_GIVEN][1] == 2
    automatic = plugin_subject(CONFIGS / "medusa_tree.yaml", tmp_path)
    assert automatic.engines[AS_GIVEN][1] == load_config(CONFIGS / "medusa_tree.yaml").draft_length.tokens


def test_grammars_are_told_so_that_requests_have_some(tmp_path: Path) -> None:
    assert plugin_subject(CONFIGS / "grammar.yaml", tmp_path).uses_grammar
    assert not plugin_subject(CONFIGS / "suffix.yaml", tmp_path).uses_grammar
    assert not stock_subject(json.dumps({"method": "ngram", "num_speculative_tokens": 5})).uses_grammar


@pytest.mark.parametrize(
    ("text", "is_v2", "seeds", "by_vllm"),
    [
        ("{method: ngram}", False, "batch", False),
        ("{method: ngram}", True, "drafts", False),
        ("{method: ngram}\nverification: {method: token}", True, "neither", False),
        ("{method: medusa, model: H, tree: auto}", True, "batch", False),
        ("{method: draft_model, model: D}", True, "drafts", False),
        ("{method: draft_model, model: D, draft_sampling: probabilistic}", True, "neither", False),
        ("{method: vllm, config: {method: mtp}}", True, "drafts", False),
        ("{method: vllm, config: {method: mtp}}", False, "neither", True),
        ("{method: vllm, config: {method: mtp, rejection_sample_method: block}}", True, "neither", False),
    ],
)
def test_what_is_compared_follows_from_runner_and_verification(
    text: str, is_v2: bool, seeds: str, by_vllm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (modes, subject):
        monkeypatch.setattr(module, "takes_v2", lambda: is_v2)
    path = tmp_path / "fixed.yaml"
    path.write_text(f"proposer: {text}\ndraft_length: {{policy: fixed, tokens: 3}}\n")
    found = plugin_subject(path, tmp_path)
    assert (found.seeds, found.by_vllm) == (seeds, by_vllm)
