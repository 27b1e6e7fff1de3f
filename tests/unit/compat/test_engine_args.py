"""Registration and translation, with vLLM's own classes but no engine."""

import argparse
import importlib.metadata
import json
import logging
from typing import Any

import pytest

import vllm_spec_plugin
from vllm_spec_plugin import plugin
from vllm_spec_plugin.compat import engine_args, version
from vllm_spec_plugin.compat.patching import wrap
from vllm_spec_plugin.settings import KEY

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
YAML = "proposer:\n  method: ngram\ndraft_length:\n  policy: fixed\n  tokens: 3\n"


@pytest.fixture
def config_path(tmp_path):
    path = tmp_path / "plugin.yaml"
    path.write_text(YAML)
    return path


def parse(value):
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plugin.register()
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    return parser.parse_args(["--speculative-config", value]).speculative_config


def test_the_entry_point_is_installed():
    [entry] = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "vllm_spec_plugin"]
    assert entry.load() is plugin.register


def test_registering_twice_wraps_once():
    plugin.register()
    first = EngineArgs.create_engine_config
    plugin.register()
    assert EngineArgs.create_engine_config is first


def test_the_switch_keeps_it_out(monkeypatch):
    monkeypatch.setenv("VLLM_SPEC_PLUGIN", "0")
    monkeypatch.setattr(engine_args, "patch", lambda: pytest.fail("registered though switched off"))
    plugin.register()


def test_stock_json_stays_as_it_was():
    stock = {"method": "ngram", "num_speculative_tokens": 3}
    assert parse(json.dumps(stock)) == stock


def test_a_path_is_read(config_path):
    given = parse(str(config_path))
    assert given[KEY]["config"]["draft_length"]["tokens"] == 3
    assert given == vllm_spec_plugin.speculative_config(config_path)


def test_a_mistake_is_an_argument_error_that_names_it(tmp_path):
    path = tmp_path / "plugin.yaml"
    path.write_text(YAML.replace("tokens", "tokns"))
    with pytest.raises(argparse.ArgumentError, match="tokns"):
        parse(str(path))


def test_an_unsupported_vllm_is_an_error_only_when_the_plugin_is_asked_for(monkeypatch, config_path):
    monkeypatch.setattr(version, "version", lambda name: "0.33.0")
    assert parse('{"method": "ngram"}') == {"method": "ngram"}
    with pytest.raises(argparse.ArgumentError, match=r"0\.33\.0"):
        parse(str(config_path))
    with pytest.raises(version.UnsupportedVersionError, match=r">=0\.32"):
        vllm_spec_plugin.speculative_config(config_path)


class Arguments:
    """The engine arguments that translation looks at."""

    speculative_config: dict[str, Any]

    def __init__(self, **given):
        self.worker_cls, self.scheduler_cls, self.additional_config = "auto", None, {"mine": 1}
        self.async_scheduling = None
        self.__dict__.update(given)


def test_settings_become_stock_ones(config_path):
    arguments = Arguments()
    engine_args.translate(arguments, vllm_spec_plugin.speculative_config(config_path))
    assert arguments.speculative_config["method"] == "custom_class"
    assert arguments.speculative_config["num_speculative_tokens"] == 3
    assert arguments.worker_cls in engine_args.WORKERS.values()
    assert arguments.scheduler_cls == engine_args.SCHEDULER
    assert arguments.additional_config["mine"] == 1
    assert KEY in arguments.additional_config


@pytest.mark.parametrize("name", ["worker_cls", "scheduler_cls"])
def test_a_class_of_the_users_own_is_refused_by_name(config_path, name):
    with pytest.raises(ValueError, match=f"{name}='mine.Own'"):
        engine_args.translate(Arguments(**{name: "mine.Own"}), vllm_spec_plugin.speculative_config(config_path))


def test_stock_keys_beside_a_plugin_yaml_are_refused(config_path):
    given = {**vllm_spec_plugin.speculative_config(config_path), "method": "ngram"}
    with pytest.raises(ValueError, match="method"):
        engine_args.translate(Arguments(), given)


def test_without_a_plugin_config_vllm_builds_what_it_would_have(monkeypatch):
    plugin.register()
    arguments = Arguments(speculative_config={"method": "ngram"})
    before = dict(vars(arguments))
    monkeypatch.setattr(engine_args, "translate", lambda *given: pytest.fail("translated a stock config"))
    wrapped = engine_args._translate_settings(lambda self: "built")
    assert wrapped(arguments) == "built"
    assert vars(arguments) == before


def test_wrapping_somebody_elses_replacement_is_logged(caplog):
    class Owner:
        def method(self):
            return "theirs"

    for name in ("vllm", "vllm.vllm_spec_plugin"):
        logging.getLogger(name).propagate = True
    with caplog.at_level(logging.WARNING, logger="vllm.vllm_spec_plugin"):
        wrap(Owner, "method", lambda original: lambda self: original(self) + " wrapped")
    assert Owner().method() == "theirs wrapped"
    assert "already replaced" in caplog.text


def test_asking_for_a_switched_off_plugin_is_an_error(monkeypatch, config_path):
    monkeypatch.setenv("VLLM_SPEC_PLUGIN", "0")
    with pytest.raises(RuntimeError, match="VLLM_SPEC_PLUGIN=0"):
        vllm_spec_plugin.speculative_config(config_path)
