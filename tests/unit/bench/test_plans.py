"""Which engines a command line comes to."""

from pathlib import Path

import pytest

from vllm_spec_plugin.bench import plans
from vllm_spec_plugin.bench.plans import engine_arguments, plan_arms
from vllm_spec_plugin.config import ConfigError, load_config

NGRAM = "proposer:\n  method: ngram\ndraft_length:\n  policy: fixed\n  tokens: 7\n"


def test_the_three_arms(tmp_path: Path) -> None:
    found = plan_arms(["none", "stock", "plugin"], "/models/draft", 3, tmp_path)
    assert [plan.num_draft_tokens for plan in found.values()] == [0, 3, 3]
    assert found["none"].speculative_config is None
    assert found["stock"].speculative_config == {
        "method": "draft_model",
        "model": "/models/draft",
        "num_speculative_tokens": 3,
    }
    assert isinstance(found["plugin"].speculative_config, str)
    config = load_config(found["plugin"].speculative_config)
    assert config.proposer.method == "draft_model"
    assert (config.proposer.model, config.draft_length.tokens) == ("/models/draft", 3)


def test_a_file_has_its_own_draft_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(NGRAM)
    monkeypatch.chdir(tmp_path)
    plan = plan_arms(["own.yaml"], "draft", 3, tmp_path)["own.yaml"]
    assert plan.num_draft_tokens == 7
    assert plan.speculative_config == str(tmp_path / "own.yaml")
    assert plan.settings is not None
    assert plan.settings["proposer"]["method"] == "ngram"


def test_an_arm_that_was_named_twice_is_there_once(tmp_path: Path) -> None:
    assert list(plan_arms(["none", "stock", "none"], "draft", 3, tmp_path)) == ["none", "stock"]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml"):
        plan_arms([str(tmp_path / "nothing.yaml")], "draft", 3, tmp_path)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_engines_differ_in_their_speculation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    monkeypatch.setattr(plans, "runs_on_cpu", lambda: on_cpu)
    found = plan_arms(["none", "stock", "plugin"], "draft", 3, tmp_path)
    none, stock, plugin = (engine_arguments(plan, "target", 5, False) for plan in found.values())
    assert ("dtype" in none) == on_cpu
    assert "speculative_config" not in none
    assert stock.pop("speculative_config") != plugin.pop("speculative_config")
    assert none == stock == plugin
    assert (none["model"], none["seed"], none["enforce_eager"]) == ("target", 5, False)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_engines_may_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_cpu: bool) -> None:
    monkeypatch.setattr(plans, "runs_on_cpu", lambda: on_cpu)
    plan = plan_arms(["none"], "draft", 3, tmp_path)["none"]
    assert engine_arguments(plan, "target", 5, False, 0.125)["gpu_memory_utilization"] == 0.125
    assert engine_arguments(plan, "target", 5, False).get("gpu_memory_utilization") == (0.5 if on_cpu else None)
