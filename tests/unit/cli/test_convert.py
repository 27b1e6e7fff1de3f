"""`vllm-spec convert`, and hints for vLLM's keys and methods in a plugin.yaml."""

import json
from dataclasses import fields
from typing import get_args

import yaml

from tests.unit.cli.running import assert_mistake, run
from vllm_spec_plugin.compat.installed import speculative_keys, speculative_methods
from vllm_spec_plugin.config import parse_config
from vllm_spec_tools import vllm_json


def test_the_keys_and_methods_of_the_installed_vllm_are_read_from_its_source():
    from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod

    assert set(speculative_keys()) == {field.name for field in fields(SpeculativeConfig)}
    assert speculative_methods() == get_args(SpeculativeMethod)


def test_vllms_own_drafter_drafts_with_the_plugins_lengths(tmp_path):
    given = {"method": "eagle3", "model": "org/head", "draft_sample_method": "probabilistic"}
    table = {"num_speculative_tokens_per_batch_size": [[1, 8, 5], [9, 64, 0]], "enable_adaptive_verification": True}
    out = run("convert", "-", input=json.dumps(given | table | {"num_speculative_tokens": 5})).stdout
    data = yaml.safe_load(out)
    assert data["proposer"] == {"method": "vllm", "config": given}
    assert data["draft_length"] == {"policy": "optimal", "tokens": 5}
    assert parse_config(data, "converted").is_native
    assert all(f"# {key}: left out" in out for key in table)
    words = ("convert", '{"method": "ngram", "prompt_lookup_max": 3}', "--out", tmp_path / "plugin.yaml")
    assert run(*words).exit_code == 0
    assert run("check", words[-1]).exit_code == 0


def test_a_drafter_whose_package_is_missing_is_refused_at_once(tmp_path, monkeypatch):
    path = tmp_path / "plugin.yaml"
    path.write_text("proposer: {method: vllm, config: {method: suffix}}")
    monkeypatch.setattr(vllm_json, "find_spec", lambda name: None)
    words = "method: got the text 'suffix', and vLLM's drafter needs arctic-inference, which is not installed"
    assert_mistake(run("check", path), f"plugin.yaml: proposer.config.{words}")
    assert_mistake(run("bench", "--arm", "stock:suffix"), f"--arm stock:suffix: {words}")
    assert_mistake(run("certify", "--model", "m", "--config", '{"method": "suffix"}'), f"--config: {words}")
    monkeypatch.setattr(vllm_json, "find_spec", lambda name: object())
    assert run("check", path).exit_code == 0
