"""Which engines the chosen arms come to."""

from pathlib import Path

import pytest

from vllm_spec_plugin.config import ConfigError, PluginConfig, load_config
from vllm_spec_plugin.tools.bench.arm_spec import NONE, choose_arms
from vllm_spec_plugin.tools.bench.arms import PlannedArm, base_of, engines, plan_arms
from vllm_spec_plugin.tools.bench.engine_args import engine_arguments
from vllm_spec_plugin.tools.demo import model_path

NGRAM = "proposer:\n  method: ngram\n  max_order: 7\ndraft_length:\n  policy: heuristic\n  tokens: 3\n"
WORDS = ("fixed:1,4", "optimal")


def planned(
    folder: Path, *words: str, proposer: str | None = None, draft: str | None = None, may_share: bool = True
) -> dict[str, PlannedArm]:
    path = None
    if proposer is not None:
        path = folder / "own.yaml"
        path.write_text(proposer)
    return plan_arms(choose_arms(words), base_of(path, draft, "greedy"), 8, folder, may_share=may_share)


def config_of(arm: PlannedArm) -> PluginConfig:
    assert isinstance(arm.plan.speculative_config, str)
    return load_config(arm.plan.speculative_config)


@pytest.mark.parametrize("draft", [None, "some/draft"])
def test_without_a_proposer_the_draft_model_drafts(tmp_path: Path, draft: str | None) -> None:
    arms = planned(tmp_path, *WORDS, "stock:draft_model", draft=draft)
    proposer = config_of(arms["optimal"]).proposer
    assert proposer.method == "draft_model"
    assert (proposer.model, proposer.draft_sampling) == (draft or str(model_path("draft")), "greedy")
    settings = arms["vLLM's draft_model, K = 4"].plan.speculative_config
    assert isinstance(settings, dict)
    assert settings["model"] == proposer.model


def test_only_the_draft_length_of_a_given_file_is_replaced(tmp_path: Path) -> None:
    arms = planned(tmp_path, *WORDS, proposer=NGRAM + "verification:\n  lenience: 0.9\n")
    for name, policy, tokens in (("fixed K = 4", "fixed", 4), ("optimal", "optimal", 8)):
        config = config_of(arms[name])
        assert config.proposer.method == "ngram"
        assert (config.proposer.max_order, config.verification.lenience) == (7, 0.9)
        assert (config.draft_length.policy, config.draft_length.tokens) == (policy, tokens)


@pytest.mark.parametrize("draft", [None, "some/draft"])
def test_stock_takes_the_draft_that_was_named_or_the_proposers(tmp_path: Path, draft: str | None) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "own.yaml").write_text("proposer: {method: draft_model, model: draft}\n")
    # Files are written elsewhere, where a relative path would mean something else.
    folder = tmp_path / "temporary"
    folder.mkdir()
    base = base_of(tmp_path / "own.yaml", draft, "greedy")
    arms = plan_arms(choose_arms(["fixed:2", "stock:draft_model:5"]), base, 8, folder)
    proposer = config_of(arms["fixed K = 2"]).proposer
    assert proposer.method == "draft_model"
    assert proposer.model == str(tmp_path / "draft")
    assert arms["vLLM's draft_model, K = 5"].plan.speculative_config == {
        "method": "draft_model",
        "model": draft or str(tmp_path / "draft"),
        "num_speculative_tokens": 5,
    }


def test_fixed_arms_share_an_engine_of_the_longest_draft(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:1,4,2", "optimal")
    assert [arms[name].spec_tokens for name in ("fixed K = 1", "fixed K = 4", "fixed K = 2", "optimal")] == [
        1,
        4,
        2,
        None,
    ]
    assert engines(arms) == {
        NONE: [NONE],
        "fixed K = 1, fixed K = 4, fixed K = 2": ["fixed K = 1", "fixed K = 4", "fixed K = 2"],
        "optimal": ["optimal"],
    }
    assert config_of(arms["fixed K = 1"]).draft_length.tokens == 4


def test_drafts_switched_off_are_an_arm_that_is_not_compared_as_a_draft_length(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:0,4")
    assert engines(arms)["fixed K = 0, fixed K = 4"] == ["fixed K = 0", "fixed K = 4"]
    assert [(arms[name].spec_tokens, arms[name].is_fixed) for name in ("fixed K = 0", "fixed K = 4")] == [
        (0, False),
        (4, True),
    ]
    alone = planned(tmp_path, "fixed:0")
    assert config_of(alone["fixed K = 0"]).draft_length.policy == "fixed"


@pytest.mark.parametrize(
    ("proposer", "may_share"),
    [
        ("{method: ngram, shared: true}", True),
        ("{method: medusa, model: heads, tree: auto}", True),
        ("{method: ngram}", False),
    ],
)
def test_where_that_would_not_be_the_same_each_has_its_own(tmp_path: Path, proposer: str, may_share: bool) -> None:
    arms = planned(tmp_path, "fixed:1,4", proposer=f"proposer: {proposer}\n", may_share=may_share)
    assert len(engines(arms)) == 3
    assert [(arms[name].spec_tokens, arms[name].plan.num_draft_tokens) for name in ("fixed K = 1", "fixed K = 4")] == [
        (None, 1),
        (None, 4),
    ]


def test_a_draft_length_that_the_proposer_cannot_have_is_refused_by_its_file(tmp_path: Path) -> None:
    proposer = "proposer: {method: medusa, model: heads, tree: [[0], [1]]}\ndraft_length: {policy: fixed}\n"
    with pytest.raises(ConfigError, match=r"own\.yaml with draft_length fixed, 1 tokens"):
        planned(tmp_path, "fixed:1,4", proposer=proposer)


def test_a_switched_off_mechanism_is_an_engine_of_its_own(tmp_path: Path) -> None:
    arms = plan_arms(choose_arms(["optimal", "without:trials"]), base_of(None, None, "greedy"), 8, tmp_path)
    assert arms["without trials"].plan.settings == arms["optimal"].plan.settings
    assert len(engines(arms)) == 3
    arguments = engine_arguments(arms["without trials"].plan, "target", 0, enforce_eager=True)
    assert arguments["without"] == "trials"
    assert "without" not in engine_arguments(arms["optimal"].plan, "target", 0, enforce_eager=True)
