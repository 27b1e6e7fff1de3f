"""What engines are started with."""

from pathlib import Path

import pytest

from vllm_spec_plugin.tools.bench import engine_args
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan, engine_arguments, model_source, plan_file, stock_plan
from vllm_spec_plugin.tools.serving import ServerError

NGRAM = "proposer:\n  method: ngram\ndraft_length:\n  policy: fixed\n  tokens: 7\n"
NONE = ArmPlan(None, 0, None)


def test_stock_ngram_matches_as_many_tokens_as_ours() -> None:
    assert stock_plan("ngram", "draft", 5).speculative_config == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }


def test_a_model_is_a_folder_that_is_there_or_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide").mkdir()
    assert model_source("--target", "wide", "target") == str(tmp_path / "wide")
    assert model_source("--target", "some/model", "target") == "some/model"
    with pytest.raises(ServerError, match=r"--target \./none: no such folder"):
        model_source("--target", "./none", "target")


@pytest.mark.parametrize("on_cpu", [True, False])
def test_engines_differ_in_their_speculation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    monkeypatch.setattr(engine_args, "runs_on_cpu", lambda: on_cpu)
    (tmp_path / "own.yaml").write_text(NGRAM)
    found = (NONE, stock_plan("draft_model", "draft", 3), plan_file(tmp_path / "own.yaml"))
    none, stock, plugin = (engine_arguments(plan, "target", 5, False) for plan in found)
    assert ("dtype" in none) == on_cpu
    assert "speculative_config" not in none
    assert stock.pop("speculative_config") != plugin.pop("speculative_config")
    assert none == stock == plugin
    assert (none["model"], none["seed"], none["enforce_eager"]) == ("target", 5, False)
