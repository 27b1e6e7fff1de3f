"""The file that is recommended can be served, and says where it comes from."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tools.planner.cases import PROVENANCE, plan
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_plugin.tools.planner.plugin_yaml import plugin_yaml


@pytest.mark.parametrize("place", [0, 1, 2])
def test_it_loads_and_is_the_candidate_with_the_policy_that_stops_where_nothing_pays(
    tmp_path: Path, place: int
) -> None:
    results = plan()
    choice = results.forecasts[place]
    path = tmp_path / "plugin.yaml"
    path.write_text(plugin_yaml(choice, results.verdict, PROVENANCE), encoding="utf-8")
    config = load_config(path)
    assert config.proposer.method == choice.candidate.proposer["method"]
    assert config.draft_length.policy == "optimal"
    assert config.draft_length.tokens == choice.tokens
    assert config.verification.lenience == 1


def test_it_says_what_was_measured() -> None:
    results = plan()
    text = plugin_yaml(results.choice, results.verdict, PROVENANCE)
    comments = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert results.choice.candidate.name == CASCADE
    assert results.verdict.answer in comments
    assert "on 2026-01-02 for /models/big, from 3 prompts, on 2 cores of a CPU, vLLM 0.32.0" in comments
    assert "vllm serve /models/big --speculative-config THIS_FILE" in comments
    assert max(map(len, text.splitlines())) <= 100


def test_no_name_gets_out_of_its_comment(tmp_path: Path) -> None:
    results = plan()
    text = plugin_yaml(results.choice, None, PROVENANCE | {"model": "a\nproposer: {}"})
    path = tmp_path / "plugin.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_config(path).proposer.method == "cascade"


def test_of_a_tree_it_says_that_it_is_one() -> None:
    results = plan()
    candidate = replace(results.choice.candidate, is_tree=True)
    assert "Of a whole tree" in plugin_yaml(replace(results.choice, candidate=candidate), None, PROVENANCE)
