"""Registration and translation, with vLLM's own classes but no engine."""

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import vllm_spec_plugin
from tests.unit.register.arguments import Arguments
from tests.unit.register.installations import install
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import engine_args, plugin
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
UsageContext = pytest.importorskip("vllm.usage.usage_lib").UsageContext


def parse_line(*words):
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plugin.register()
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    return parser.parse_args(words)


def parse(value):
    return parse_line("--speculative-config", value).speculative_config


OFF = [
    ({"VLLM_SPEC_PLUGIN": "0"}, "VLLM_SPEC_PLUGIN=0"),
    ({"VLLM_SPEC_PLUGIN": "off"}, "VLLM_SPEC_PLUGIN=off"),
    ({"VLLM_PLUGINS": ""}, "VLLM_PLUGINS= leaves vllm_spec_plugin out"),
    ({"VLLM_PLUGINS": "lora_hf_hub_resolver"}, "VLLM_PLUGINS=lora_hf_hub_resolver leaves vllm_spec_plugin out"),
]


def forms(path):
    """All ways to name a plugin.yaml: as arguments of a program, and on a command line."""
    dicts: list[Any] = [{KEY: path}, {KEY: Path(path)}]
    speculative = [str(path), Path(path), *dicts, vllm_spec_plugin.speculative_config(path)]
    lines = [["--speculative-config", word] for word in (str(path), json.dumps({KEY: str(path)}))]
    lines += [["--speculative-config.vllm_spec_plugin", str(path)]]
    lines += [["--additional-config", json.dumps({KEY: str(path), "mine": 1})]]
    given = [Arguments(speculative_config=each) for each in speculative]
    given += [Arguments(speculative_config=None, additional_config={**each, "mine": 1}) for each in dicts]
    for line in lines:
        parsed = parse_line(*line)
        additional = parsed.additional_config or {"mine": 1}
        given.append(Arguments(speculative_config=parsed.speculative_config, additional_config=additional))
    return given


@pytest.mark.parametrize(("environment", "reason"), OFF)
def test_where_it_is_kept_out_a_plugin_yaml_serves_without_speculation(
    monkeypatch, tmp_path, warnings, environment, reason
):
    """The file may be broken or gone: it is not read."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    engine_args.log_once.cache_clear()
    for arguments in forms(tmp_path / "none.yaml"):
        before = dict(vars(arguments))
        built = engine_args.configure(arguments, functools.partial(getattr, arguments, "speculative_config"))
        assert built is None
        assert vars(arguments) == before
    assert warnings() == [f"{reason}: serving WITHOUT speculation, a plugin.yaml has no effect"]


def test_each_way_to_name_a_file_serves_it(monkeypatch, config_path):
    for arguments in forms(config_path):
        translated: list[Any] = []

        def create(given=arguments, translated=translated):
            translated.append((given.speculative_config, given.additional_config))
            raise RuntimeError("no engine here")

        with pytest.raises(RuntimeError, match="no engine here"):
            engine_args.configure(arguments, create)
        [(speculative, additional)] = translated
        assert (speculative["method"], speculative["num_speculative_tokens"]) == ("custom_class", 3)
        assert additional == {**vllm_spec_plugin.speculative_config(config_path), "mine": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({KEY: "{}/none.yaml"}, "none.yaml: no such file"),
        ({KEY: 5}, "vllm_spec_plugin: got 5; allowed: the path of a plugin.yaml"),
        ({KEY: "{}/plugin.yaml", "method": "ngram"}, "got method together with a plugin.yaml"),
    ],
)
def test_a_mistake_is_the_same_error_in_each_form(tmp_path, config_path, given, words):
    given = {key: value.format(tmp_path) if isinstance(value, str) else value for key, value in given.items()}
    with pytest.raises(ConfigError, match=words):
        create(given)
    with pytest.raises(argparse.ArgumentError, match=words):
        parse(json.dumps(given))
    if "method" not in given:
        with pytest.raises(argparse.ArgumentError, match=words):
            parse_line("--additional-config", json.dumps(given))


def test_two_speculative_configs_are_refused(config_path):
    stock = {"method": "ngram", "num_speculative_tokens": 3}
    arguments = Arguments(speculative_config=stock, additional_config={KEY: str(config_path)})
    with pytest.raises(ConfigError, match=r"additional_config\.vllm_spec_plugin: got .* and speculative_config"):
        engine_args.configure(arguments, lambda: None)


def test_an_unsupported_vllm_is_an_error_only_when_the_plugin_is_asked_for(monkeypatch, config_path, tmp_path):
    given = parse(str(config_path))
    install(monkeypatch, tmp_path, "0.34.0", "0.34.0", ["_C_stable_libtorch.abi3.so"])
    stock = {"method": "ngram"}
    assert parse(json.dumps(stock)) == stock
    assert engine_args.configure(Arguments(speculative_config=stock), lambda: "built") == "built"
    with pytest.raises(argparse.ArgumentError, match=r"vLLM 0\.34\.0; run: "):
        parse(str(config_path))
    for call in (vllm_spec_plugin.speculative_config, create):
        with pytest.raises(ConfigError, match=r">=0\.32,<0\.34; found .* vLLM 0\.34\.0; run: "):
            call(config_path)
    with pytest.raises(SystemExit):
        create(given)


CONFLICTS = [
    ({"VLLM_USE_V2_MODEL_RUNNER": "1"}, {}, "VLLM_USE_V2_MODEL_RUNNER=1: "),
    ({"VLLM_USE_RUST_FRONTEND": "1"}, {}, "VLLM_USE_RUST_FRONTEND=1: "),
    ({}, {"async_scheduling": True}, "--async-scheduling: "),
]


@pytest.mark.parametrize(("environment", "options", "said"), CONFLICTS, ids=["V2", "Rust", "asynchronous"])
def test_what_drafts_cannot_have_is_one_message_with_a_plugin_yaml_only(
    monkeypatch, config_path, capsys, environment, options, said
):
    config_path.write_text(f"proposer: {{method: draft_model, model: {model_path('draft')}}}")
    parsed = parse(str(config_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["vllm", "serve"])
    assert parse('{"method": "ngram"}') == {"method": "ngram"}
    if environment:
        with pytest.raises(argparse.ArgumentError, match=said):
            parse(str(config_path))
    stock = Arguments(speculative_config={"method": "ngram"}, **options)
    assert engine_args.configure(stock, lambda: "built", True) == "built"
    arguments = Arguments(speculative_config=config_path, **options)
    with pytest.raises(ConfigError, match=f"^{said}"):
        engine_args.configure(arguments, lambda: pytest.fail("vLLM's part"), True)
    arguments.speculative_config = parsed
    with pytest.raises(SystemExit) as caught:
        engine_args.configure(arguments, lambda: pytest.fail("vLLM's part"), True)
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f": error: {said}" in line
    assert "; allowed: " in line


def test_vllms_create_engine_config_says_whether_it_is_for_a_server(monkeypatch, config_path):
    """Only `vllm serve` has a Rust frontend: the variable alone does not stop `LLM(...)`."""
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    monkeypatch.setattr(engine_args, "translate", lambda *given: pytest.fail("went on"))
    plugin.register()
    wrapped = EngineArgs.create_engine_config
    plugin.register()
    assert EngineArgs.create_engine_config is wrapped
    arguments = EngineArgs(model=str(model_path("target")), speculative_config=str(config_path))
    with pytest.raises(ConfigError, match="VLLM_USE_RUST_FRONTEND=1: "):
        arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    with pytest.raises(pytest.fail.Exception, match="went on"):
        arguments.create_engine_config(UsageContext.LLM_CLASS)


def create(speculative_config):
    """Runs the wrapped `create_engine_config` with these settings, up to vLLM's part."""
    arguments = Arguments(speculative_config=speculative_config, additional_config={"mine": 1})
    before = dict(vars(arguments))
    try:
        return engine_args.configure(arguments, lambda: pytest.fail("vLLM's part"))
    finally:
        assert vars(arguments) == before
