"""`vllm-spec convert`, and hints for vLLM's keys and methods in a plugin.yaml."""

import json
from dataclasses import fields
from typing import get_args

import pytest
import yaml

from tests.unit.cli.running import assert_mistake, run
from vllm_spec_plugin.compat.installed import installed_version, speculative_keys, speculative_methods
from vllm_spec_plugin.config import parse_config
from vllm_spec_tools import vllm_json

NO_METHOD = "method: got the text 'nosuch'; allowed: ngram, "


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
    assert_mistake(run(*words), "exists; allowed: a new file")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{method: ngram}", "JSON: not JSON: line 1, column 2"),
        ("[1]", "got a list; allowed: a JSON object"),
        ({"method": "nosuch"}, NO_METHOD),
        ({"method": ["ngram"]}, "method: got a list; allowed: ngram, "),
        ({"method": "ngrm"}, "did you mean ngram?"),
        ({"model": 5}, "model: got 5; allowed: a folder or a hub name"),
        ({"method": "ngram", "num_speculative_tokens": -3}, "num_speculative_tokens: got -3; allowed: a whole number"),
        ({"num_speculative_tokens": 3}, "proposer.config: got neither method nor model"),
        ({"method": "mtp", "num_spec_tokens": 3}, f"num_spec_tokens: unknown to vLLM {installed_version()} (got 3)"),
    ],
)
def test_what_vllm_does_not_take_is_refused(given, words):
    assert_mistake(run("convert", given if isinstance(given, str) else json.dumps(given)), words)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{method: mtp}", "if it is a vLLM method: {method: vllm, config: {method: mtp}}"),
        ("{method: vllm, config: {method: nosuch}}", f"proposer.config.{NO_METHOD}"),
        (
            "{method: cascade, proposers: [{method: suffix}, {method: vllm, config: {method: nosuch}}]}",
            f"proposer.proposers[1].config.{NO_METHOD}",
        ),
    ],
)
def test_a_plugin_yaml_with_an_unknown_method_of_vllm_is_refused_without_a_model(tmp_path, section, words):
    path = tmp_path / "plugin.yaml"
    path.write_text(f"proposer: {section}")
    for command in (["check"], ["certify", "--model", "m", "--config"], ["demo", "--config"], ["bench", "--arm"]):
        assert_mistake(run(*command, path), words)


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
