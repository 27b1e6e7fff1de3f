"""`vllm-spec convert`, and hints for vLLM's keys and methods in a plugin.yaml."""

import ast
import importlib.util
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tests.unit.cli.running import assert_mistake, run
from vllm_spec_plugin.compat.installed import speculative_methods
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of
from vllm_spec_plugin.schema.errors import show
from vllm_spec_plugin.schema.vllm_keys import KEYS, reason_against
from vllm_spec_tools import vllm_json
from vllm_spec_tools.vllm_json import convert

DRAFT = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B"}
SINCE_0_33 = {"disable_lookahead_block_hashes", "draft_lm_head_quantization", "xpress_topc"} | {
    f"fly_{name}" for name in ("window_size", "entropy_threshold", "entropy_top_k")
}

# JSONs that people use, and the sections `proposer` and the draft length that they become.
CONVERTED: list[tuple[dict[str, Any], dict[str, Any], int | None]] = [
    (
        {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
        {"method": "ngram", "min_order": 4},
        5,
    ),
    (
        {"model": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1},
        {"method": "ngram", "min_order": 1},
        5,
    ),
    (
        {"method": "ngram", "num_speculative_tokens": 100, "prompt_lookup_max": 500},
        {"method": "ngram", "min_order": 16},
        64,
    ),
    ({"model": "a/b", "num_speculative_tokens": 5}, {"method": "draft_model", "model": "a/b"}, 5),
    ({"method": "eagle3", "model": "a/b", "num_speculative_tokens": 5}, {"method": "eagle3", "model": "a/b"}, 5),
    (
        {
            "method": "suffix",
            "num_speculative_tokens": 8,
            "suffix_decoding_max_tree_depth": 24,
            "suffix_decoding_min_token_prob": 0.1,
            "enable_adaptive_verification": True,
        },
        {"method": "suffix"},
        8,
    ),
    ({"method": "suffix"}, {"method": "suffix"}, 24),
]
# JSONs that are refused, and words of the message.
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    (
        DRAFT | {"num_speculative_tokens": 8, "rejection_sample_method": "fly", "fly_window_size": 6},
        ["rejection_sample_method: got the text 'fly'; allowed: standard, block; not exact"],
    ),
    (
        DRAFT | {"num_speculative_tokens": 12, "parallel_drafting": True},
        ["parallel_drafting: got true; models for parallel drafting are not served"],
    ),
    (
        {"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B", "num_speculative_tokens": 3, "draft_pipeline_parallel_size": 1},
        [
            "draft_pipeline_parallel_size: unknown to vLLM 0.32 and 0.33",
            "method: got the text 'eagle'; the plugin has no proposer for it; vLLM's drafter serves it: {method: vllm,",
        ],
    ),
    ({"num_speculative_tokens": 2}, ["method: got nothing (null); allowed: draft_model"]),
    (
        {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": {"hf_config": {}}},
        ["draft_model_config: got a section; vLLM fills it in itself", "it drafts nothing"],
    ),
]


def vllm_tree() -> ast.Module:
    package = importlib.util.find_spec("vllm")
    assert package is not None
    assert package.origin is not None
    return ast.parse((Path(package.origin).parent / "config" / "speculative.py").read_text())


def test_every_key_of_vllm_is_known():
    (config,) = [
        node for node in vllm_tree().body if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig"
    ]
    fields = [
        node.target.id for node in config.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    assert "num_speculative_tokens" in fields
    # A key that only one version has is known, too.
    assert set(KEYS) - set(fields) == (SINCE_0_33 if version("vllm").startswith("0.32") else set())
    assert set(fields) <= set(KEYS)


def test_every_method_of_vllm_is_known():
    from vllm.config.speculative import SpeculativeMethod

    methods = speculative_methods()
    assert methods == get_args(SpeculativeMethod)
    assert not {method for method in methods if not reason_against(method)} - set(map(method_of, BUNDLED))


def test_each_key_that_is_kept_exists_in_a_section():
    assert all(known.here or known.reason for known in KEYS.values())
    keys = {f"proposer.{key}" for kind in BUNDLED for key in kind.model_fields}
    with_reason = {known.here for known in KEYS.values() if known.reason}
    assert {known.here for known in KEYS.values() if known.here} - with_reason <= keys | {
        "draft_length.tokens",
        "verification.method",
    }


@pytest.mark.parametrize(("given", "proposer", "tokens"), CONVERTED)
def test_a_known_json_is_converted(given, proposer, tokens):
    result = run("convert", "--own", json.dumps(given))
    assert result.exit_code == 0, result.stderr
    config = yaml.safe_load(result.stdout)
    parse_config(config, "converted")
    assert config["proposer"] == proposer
    assert config["draft_length"] == {"policy": "optimal", "tokens": tokens}


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_a_json_that_cannot_be_converted_is_refused_with_the_reason(given, words):
    for each in words:
        assert_mistake(run("convert", "--own", json.dumps(given)), each)


def test_each_key_that_is_left_out_has_a_comment():
    given = DRAFT | {"num_speculative_tokens": 5, "draft_tensor_parallel_size": 1, "attention_backend": "TRITON_ATTN"}
    out = run("convert", "--own", json.dumps(given)).stdout
    assert "# draft_tensor_parallel_size: left out; the draft model has the target's tensor-parallel" in out
    assert "# attention_backend: left out; vLLM chooses" in out
    out = run("convert", "--own", '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 500}').stdout
    assert "# prompt_lookup_max: got 500; 16 is the maximum here" in out


def test_keys_of_the_newer_vllm_are_left_out_with_the_reason():
    head = {"method": "eagle3", "model": "a/b"}
    newer = {"draft_lm_head_quantization": "fp8", "fly_window_size": 2, "disable_lookahead_block_hashes": True}
    converted = convert(head | newer, "JSON")
    assert converted.config["proposer"] == head
    assert [note.partition(": left out; ")[0] for note in converted.notes] == list(newer)


def test_verification_is_kept_and_defaults_change_nothing():
    given = DRAFT | {"draft_sample_method": "greedy", "parallel_drafting": False, "quantization": None}
    config = convert(given | {"rejection_sample_method": "standard"}, "JSON").config
    assert config == {"proposer": DRAFT | {"draft_sampling": "greedy"}, "verification": {"method": "token"}}


def test_the_draft_models_keys_are_kept():
    keys = {"revision": "main", "code_revision": "v2", "max_model_len": 2000, "quantization": "fp8"}
    config = convert(
        DRAFT | keys | {"num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}, "JSON"
    ).config
    assert config["proposer"] == DRAFT | keys | {"draft_sampling": "probabilistic"}
    medusa = convert({"method": "medusa", "model": "a/b", "revision": "main"}, "JSON")
    assert medusa.notes == [
        "revision: left out; the hub's default branch is loaded; give a local folder for another one"
    ]


def test_a_file_is_written_once(tmp_path):
    path = tmp_path / "plugin.yaml"
    assert run("convert", "--own", '{"method": "suffix"}', "--out", path).exit_code == 0
    assert run("check", path).exit_code == 0
    assert_mistake(run("convert", "--own", '{"method": "suffix"}', "--out", path), "exists; allowed: a new file")


def test_a_key_that_vllm_has_elsewhere_gets_a_hint():
    result = run("convert", "--own", json.dumps(DRAFT | {"trust_remote_code": True}))
    assert_mistake(result, "unknown to vLLM 0.32 and 0.33 (got true); give vllm serve --trust-remote-code")


def test_standard_input_and_what_is_not_an_object():
    assert "method: suffix" in run("convert", "-", input='{"method": "suffix"}').stdout
    assert_mistake(run("convert", "{method: ngram}"), "JSON: not JSON: line 1, column 2")
    assert_mistake(run("convert", "[1]"), "got a list; allowed: a JSON object")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("proposer: {method: ngram}\nnum_speculative_tokens: 5", "here: draft_length.tokens (`vllm-spec convert`"),
        ("proposer: {method: ngram, prompt_lookup_max: 4}", "here: the longest match is used"),
        ("proposer: {method: medusa, model: a/b, trust_remote_code: true}", "give vllm serve --trust-remote-code"),
        ("proposer: {method: draft_model, model: a/b, draft_tensor_parallel_size: 2}", "size, as both share KV blocks"),
        ("proposer: {method: mtp}", "got the text 'mtp', a vLLM method; allowed: cascade"),
    ],
)
def test_a_plugin_yaml_with_keys_or_methods_of_vllm_gets_a_hint(line, words):
    assert_mistake(run("check", "-", input=line), words)


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


def test_what_vllm_does_not_know_is_refused_by_default_too() -> None:
    assert_mistake(run("convert", '{"method": "mtp", "num_spec_tokens": 3}'), "num_spec_tokens: unknown to vLLM")
    assert_mistake(run("convert", '{"num_speculative_tokens": 3}'), "proposer.config: got neither method nor model")


NO_METHOD = "method: got the text 'nosuch'; allowed: ngram, "


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "nosuch"}, NO_METHOD),
        ({"method": ["ngram"]}, "method: got a list; allowed: ngram, "),
        ({"method": "ngrm"}, "did you mean ngram?"),
        ({"model": 5}, "model: got 5; allowed: a folder or a hub name"),
        ({"method": "ngram", "num_speculative_tokens": -3}, "num_speculative_tokens: got -3; allowed: a whole number"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens: got 0; allowed: a whole number"),
    ],
)
def test_a_method_or_value_that_vllm_does_not_take_is_refused(given, words):
    assert_mistake(run("convert", json.dumps(given)), words)


@pytest.mark.parametrize("number", [0, -1, "x"])
def test_a_wrong_number_is_not_taken_for_a_default(number):
    given = {"method": "ngram", "prompt_lookup_min": number}
    assert_mistake(
        run("convert", "--own", json.dumps(given)), f"min_order: got {show(number)}; allowed: a whole number"
    )


def test_a_list_as_sampler_is_refused():
    given = DRAFT | {"rejection_sample_method": ["block"]}
    assert_mistake(run("convert", "--own", json.dumps(given)), "rejection_sample_method: got a list; allowed: standard")


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
