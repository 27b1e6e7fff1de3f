"""The file that is recommended can be served, and says where it comes from."""

from pathlib import Path

import pytest

from tests.unit.tools.planner.cases import PROVENANCE, plan
from vllm_spec_plugin.config import load_config
from vllm_spec_tools.planner.results import plugin_yaml


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


def test_no_name_gets_out_of_its_comment(tmp_path: Path) -> None:
    results = plan()
    text = plugin_yaml(results.choice, None, PROVENANCE | {"model": "a\nproposer: {}"})
    path = tmp_path / "plugin.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_config(path).proposer.method == "cascade"
