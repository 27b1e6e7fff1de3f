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

DRAFT = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B"}


def test_the_keys_and_methods_of_the_installed_vllm_are_read_from_its_source():
    from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod

    assert set(speculative_keys()) == {field.name for field in fields(SpeculativeConfig)}
    assert speculative_methods() == get_args(SpeculativeMethod)


def test_a_file_is_written_once(tmp_path):
    path = tmp_path / "plugin.yaml"
    assert run("convert", '{"method": "ngram", "prompt_lookup_max": 3}', "--out", path).exit_code == 0
    assert run("check", path).exit_code == 0
    assert_mistake(
        run("convert", '{"method": "ngram", "prompt_lookup_max": 3}', "--out", path), "exists; allowed: a new file"
    )


def test_standard_input_and_what_is_not_an_object():
    assert "method: suffix" in run("convert", "-", input='{"method": "suffix"}').stdout
    assert_mistake(run("convert", "{method: ngram}"), "JSON: not JSON: line 1, column 2")
    assert_mistake(run("convert", "[1]"), "got a list; allowed: a JSON object")


def test_a_method_of_vllm_in_a_plugin_yaml_gets_a_hint():
    result = run("check", "-", input="proposer: {method: mtp}")
    assert_mistake(result, "if it is a vLLM method: {method: vllm, config: {method: mtp}}")


def test_by_default_vllms_own_drafter_drafts() -> None:
    given = {
        "method": "eagle3",
        "model": "org/head",
        "num_speculative_tokens": 5,
        "draft_sample_method": "probabilistic",
    }
    table = {"num_speculative_tokens_per_batch_size": [[1, 8, 5], [9, 64, 0]], "enable_adaptive_verification": True}
    out = run("convert", json.dumps(given | table)).stdout
    data = yaml.safe_load(out)
    assert data["proposer"]["method"] == "vllm"
    del given["num_speculative_tokens"]
    assert data["proposer"]["config"] == given
    assert data["draft_length"] == {"policy": "optimal", "tokens": 5}
    assert parse_config(data, "converted").is_native
    assert all(f"# {key}: left out" in out for key in table)


NO_METHOD = "method: got the text 'nosuch'; allowed: ngram, "


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "nosuch"}, NO_METHOD),
        ({"method": ["ngram"]}, "method: got a list; allowed: ngram, "),
        ({"method": "ngrm"}, "did you mean ngram?"),
        ({"model": 5}, "model: got 5; allowed: a folder or a hub name"),
        ({"method": "ngram", "num_speculative_tokens": -3}, "num_speculative_tokens: got -3; allowed: a whole number"),
        ({"num_speculative_tokens": 3}, "proposer.config: got neither method nor model"),
        (DRAFT | {"trust_remote_code": True}, f"trust_remote_code: unknown to vLLM {installed_version()} (got true)"),
    ],
)
def test_a_method_or_value_that_vllm_does_not_take_is_refused(given, words):
    assert_mistake(run("convert", json.dumps(given)), words)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("{method: vllm, config: {method: nosuch}}", "proposer.config."),
        (
            "{method: cascade, proposers: [{method: suffix}, {method: vllm, config: {method: nosuch}}]}",
            "proposer.proposers[1].config.",
        ),
    ],
)
def test_a_plugin_yaml_with_an_unknown_method_of_vllm_is_refused_without_a_model(tmp_path, section, key):
    path = tmp_path / "plugin.yaml"
    path.write_text(f"proposer: {section}")
    assert_mistake(run("check", path), f"plugin.yaml: {key}{NO_METHOD}")
    for command in (["certify", "--model", "m", "--config"], ["demo", "--config"], ["bench", "--arm"]):
        assert_mistake(run(*command, path), f"plugin.yaml: {key}{NO_METHOD}")


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
