"""Which engines the options of a sweep come to."""

from pathlib import Path

import pytest

from vllm_spec_plugin.bench.load.arms import LoadArm, Wanted, engines, plan_load_arms
from vllm_spec_plugin.config import ConfigError, PluginConfig, load_config

DRAFT = "/models/draft"
NGRAM = "proposer:\n  method: ngram\n  max_order: 7\ndraft_length:\n  policy: heuristic\n  tokens: 3\n"


def planned(
    folder: Path,
    proposer: str | None = None,
    fixed: tuple[int, ...] = (1, 4),
    optimal: int | None = 8,
    stock: tuple[str, ...] = (),
    configs: tuple[Path, ...] = (),
) -> dict[str, LoadArm]:
    path = None
    if proposer is not None:
        path = folder / "own.yaml"
        path.write_text(proposer)
    return plan_load_arms(Wanted(path, fixed, optimal, stock, 5, configs), DRAFT, folder)


def config_of(arm: LoadArm) -> PluginConfig:
    assert isinstance(arm.plan.speculative_config, str)
    return load_config(arm.plan.speculative_config)


def test_the_arm_without_drafts_is_first_and_always_there(tmp_path: Path) -> None:
    assert list(planned(tmp_path, fixed=(), optimal=None)) == ["none"]
    arms = planned(tmp_path, stock=("ngram",))
    assert list(arms) == ["none", "K = 1", "K = 4", "optimal", "stock ngram"]
    assert arms["none"].plan.speculative_config is None
    assert [name for name, arm in arms.items() if arm.is_fixed] == ["K = 1", "K = 4"]


def test_by_default_the_bundled_draft_drafts_greedily(tmp_path: Path) -> None:
    proposer = config_of(planned(tmp_path)["optimal"]).proposer
    assert proposer.method == "draft_model"
    assert (proposer.model, proposer.draft_sampling) == (DRAFT, "greedy")


def test_only_the_draft_length_of_a_given_file_is_replaced(tmp_path: Path) -> None:
    arms = planned(tmp_path, NGRAM + "verification:\n  lenience: 0.9\n")
    for name, policy, tokens in (("K = 4", "fixed", 4), ("optimal", "optimal", 8)):
        config = config_of(arms[name])
        assert config.proposer.method == "ngram"
        assert (config.proposer.max_order, config.verification.lenience) == (7, 0.9)
        assert (config.draft_length.policy, config.draft_length.tokens) == (policy, tokens)


def test_a_draft_beside_the_given_file_is_found_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "own.yaml").write_text("proposer: {method: draft_model, model: draft}\n")
    wanted = Wanted(tmp_path / "own.yaml", (2,), None, ("draft_model",), 5, ())
    arms = plan_load_arms(wanted, DRAFT, folder)
    proposer = config_of(arms["K = 2"]).proposer
    assert proposer.method == "draft_model"
    assert proposer.model == str(tmp_path / "draft")
    assert arms["stock draft_model"].plan.speculative_config == {
        "method": "draft_model",
        "model": str(tmp_path / "draft"),
        "num_speculative_tokens": 5,
    }


def test_fixed_arms_share_an_engine_of_the_longest_draft(tmp_path: Path) -> None:
    arms = planned(tmp_path, fixed=(1, 4, 2))
    assert [arms[name].spec_tokens for name in ("K = 1", "K = 4", "K = 2", "optimal")] == [1, 4, 2, None]
    assert engines(arms) == {
        "none": ["none"],
        "K = 1, K = 4, K = 2": ["K = 1", "K = 4", "K = 2"],
        "optimal": ["optimal"],
    }
    assert config_of(arms["K = 1"]).draft_length.tokens == 4


def test_drafts_switched_off_are_an_arm_that_is_not_compared_as_a_draft_length(tmp_path: Path) -> None:
    arms = planned(tmp_path, fixed=(0, 4))
    assert engines(arms)["K = 0, K = 4"] == ["K = 0", "K = 4"]
    assert [(arms[name].spec_tokens, arms[name].is_fixed) for name in ("K = 0", "K = 4")] == [(0, False), (4, True)]
    alone = planned(tmp_path, fixed=(0,))
    assert config_of(alone["K = 0"]).draft_length.policy == "fixed"


@pytest.mark.parametrize(
    "proposer",
    ["{method: ngram, shared: true}", "{method: medusa, model: heads, tree: auto}"],
)
def test_where_that_would_not_be_the_same_each_has_its_own(tmp_path: Path, proposer: str) -> None:
    arms = planned(tmp_path, f"proposer: {proposer}\n", optimal=None)
    assert len(engines(arms)) == 3
    assert [(arms[name].spec_tokens, arms[name].plan.num_draft_tokens) for name in ("K = 1", "K = 4")] == [
        (None, 1),
        (None, 4),
    ]


def test_files_that_say_the_same_are_arms_of_their_own(tmp_path: Path) -> None:
    paths = (tmp_path / "a.yaml", tmp_path / "b.yaml")
    for path in paths:
        path.write_text(NGRAM)
    arms = planned(tmp_path, fixed=(), optimal=None, configs=paths)
    assert list(engines(arms)) == ["none", str(paths[0]), str(paths[1])]


def test_stock_ngram_matches_as_many_tokens_as_ours(tmp_path: Path) -> None:
    settings = planned(tmp_path, stock=("ngram",))["stock ngram"].plan.speculative_config
    assert settings == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }


def test_a_draft_length_that_the_proposer_cannot_have_is_refused_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"own\.yaml with draft_length fixed, 1 tokens"):
        planned(tmp_path, "proposer: {method: medusa, model: heads, tree: [[0], [1]]}\ndraft_length: {policy: fixed}\n")
