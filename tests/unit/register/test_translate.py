"""Tests the translation of a plugin.yaml into vLLM's engine arguments."""

import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import vllm_spec_plugin
from tests.unit.register.arguments import Arguments
from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.config.settings import KEY, config_in
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.draft_model import compatibility
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.register import translation
from vllm_spec_plugin.register.modes import IN_WORKERS, TOKEN_ONLY, first_runner
from vllm_spec_plugin.schema.errors import ConfigError


def translate(arguments, settings):
    """Checks and translates for the runner that is tried first."""
    source = settings[KEY]["source"]
    runner = first_runner(config_in(settings), source)
    translation.check_proposers(arguments, runner.written, source)
    translation.translate(arguments, runner, source)


def translated(path, text):
    path.write_text(text)
    arguments = Arguments()
    translate(arguments, vllm_spec_plugin.speculative_config(path))
    return arguments


def test_settings_become_stock_ones(config_path):
    arguments = translated(config_path, config_path.read_text())
    assert arguments.speculative_config["method"] == "custom_class"
    assert arguments.speculative_config["num_speculative_tokens"] == 3
    assert arguments.worker_cls in IN_WORKERS.workers.values()
    assert arguments.scheduler_cls == IN_WORKERS.schedulers[0]


@pytest.mark.parametrize(
    "proposer",
    ["{method: suffix}", "{method: ngram}", "{method: cascade, proposers: [{method: prediction}, {method: suffix}]}"],
)
def test_on_v2_the_scheduler_drafts_from_texts_and_vllm_verifies(monkeypatch, config_path, proposer):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    arguments = translated(config_path, f"proposer: {proposer}\ndraft_length: {{tokens: 6}}")
    assert arguments.speculative_config["method"] == "ngram_gpu"
    assert arguments.speculative_config["num_speculative_tokens"] == 6
    assert arguments.scheduler_cls == TOKEN_ONLY.schedulers[0]
    assert arguments.worker_cls in TOKEN_ONLY.workers.values()
    assert arguments.async_scheduling is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{method: suffix}\nverification: {method: coupled}", r"verification\.method: got coupled, but vLLM's V1"),
        ("{method: medusa, model: H, draft_sampling: shared}", r"draft_sampling: got the text 'shared', but vLLM's V1"),
    ],
)
def test_on_v1_what_needs_the_noise_of_v2_is_refused(monkeypatch, config_path, text, said):
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr(PluginConfig, "check_proposers", lambda *_: None)
    with pytest.raises(ConfigError, match=said):
        translated(config_path, f"proposer: {text}")


def test_on_v2_heads_share_the_noise_of_coupled_verification_only(monkeypatch, config_path):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setattr(PluginConfig, "check_proposers", lambda *_: None)
    text = "proposer: {method: medusa, model: H, draft_sampling: shared}\n"
    translated(config_path, text)
    said = r"draft_sampling: got the text 'shared', but vLLM's V2 runner serves with verification\.method token"
    with pytest.raises(ConfigError, match=said):
        translated(config_path, text + "verification: {method: token}")


@pytest.mark.parametrize(("method", "theirs"), [("block", "block"), ("token", "standard"), ("coupled", None)])
def test_vllms_drafters_are_verified_as_the_file_says(config_path, method, theirs):
    proposer = "{method: vllm, config: {method: ngram, prompt_lookup_max: 2}}"
    arguments = translated(config_path, f"proposer: {proposer}\nverification: {{method: {method}}}")
    assert arguments.speculative_config.get("rejection_sample_method") == theirs


@pytest.mark.parametrize("name", ["worker_cls", "scheduler_cls"])
def test_a_class_of_the_users_own_is_refused_by_name(config_path, name):
    with pytest.raises(ValueError, match=f"{name}: got 'mine.Own'"):
        translate(Arguments(**{name: "mine.Own"}), vllm_spec_plugin.speculative_config(config_path))


def test_a_draft_model_is_checked_against_the_engines_own_arguments(monkeypatch, draft_config, warnings):
    calls = []

    def check_pair(*arguments):
        calls.append(arguments)
        return ["watch out"]

    monkeypatch.setattr(compatibility, "check_pair", check_pair)
    target = ModelSource("t", "tt", "r", "tr", trust_remote_code=True, skip_tokenizer=True)
    given = {name: getattr(target, name) for name in ("model", "tokenizer", "revision", "tokenizer_revision")}
    given |= {"trust_remote_code": True, "skip_tokenizer_init": True, "tensor_parallel_size": 2, "max_model_len": 512}
    settings = draft_config("org/small", revision="r", code_revision="c", max_model_len=99)
    translate(Arguments(**given), settings)
    draft = ModelSource("org/small", revision="r", trust_remote_code=True, code_revision="c")
    assert calls == [(target, draft, 2, 512, settings[KEY]["source"], 99)]
    assert draft.code == {"trust_remote_code": True, "code_revision": "c"}
    assert replace(draft, trust_remote_code=False, code_revision=None).code == {"trust_remote_code": False}
    assert warnings() == ["watch out"]


def test_a_quantisation_that_vllm_does_not_know_is_refused(draft_config):
    said = r"plugin\.yaml: proposer\.quantization: got the text 'fp9'; .*did you mean fp8"
    with pytest.raises(ValueError, match=said):
        translate(Arguments(), draft_config(quantization="fp9"))
    translate(Arguments(), draft_config(quantization="fp8"))


def test_a_draft_whose_weights_are_damaged_is_refused_before_the_start(draft_config, tmp_path):
    """tests/unit/proposers/test_weight_files.py has every damage."""
    folder = tmp_path / "draft"
    shutil.copytree(model_path("draft"), folder)
    translate(Arguments(), draft_config(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"proposer\.model: .*has no weights; allowed: files of safetensors"):
        translate(Arguments(), draft_config(folder))
    translate(Arguments(load_format="dummy"), draft_config(folder))


@pytest.mark.parametrize(
    ("method", "worker", "is_v2", "outcome"),
    [
        ("null", "theirs.Worker", True, "warned"),
        ("coupled", "theirs.Worker", True, "refused"),
        ("block", "theirs.Worker", True, "refused"),
        ("token", "theirs.Worker", True, ""),
        ("coupled", "ours", True, ""),
        ("block", "theirs.Worker", False, ""),
    ],
)
def test_a_users_own_worker_has_vllms_verification(method, worker, is_v2, outcome, monkeypatch, warnings):
    monkeypatch.setattr(translation, "is_own_worker", lambda name: name == "ours")
    data: Any = {"proposer": {"method": "vllm", "config": {"method": "mtp"}}, "verification": {"method": None}}
    data["verification"]["method"] = None if method == "null" else method
    served: Any = SimpleNamespace(use_v2_model_runner=is_v2, parallel_config=SimpleNamespace(worker_cls=worker))
    check = partial(translation.check_worker, parse_config(data, "p.yaml"), served, "p.yaml")
    if outcome == "refused":
        with pytest.raises(ConfigError, match=rf"p\.yaml: verification\.method: got {method}, but worker_cls 'theirs"):
            check()
    else:
        check()
    assert bool(warnings()) is (outcome == "warned")
