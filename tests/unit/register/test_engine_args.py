"""Registration and translation, with vLLM's own classes but no engine."""

import argparse
import functools
import importlib.metadata
import json
import logging
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import vllm_spec_plugin
from tests.unit.register.installations import install
from vllm_spec_plugin.compat.patching import wrap
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import engine_args, plugin
from vllm_spec_plugin.register.modes import IN_WORKERS
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
UsageContext = pytest.importorskip("vllm.usage.usage_lib").UsageContext
YAML = "proposer:\n  method: ngram\ndraft_length:\n  policy: fixed\n  tokens: 3\n"


@pytest.fixture
def config_path(tmp_path):
    path = tmp_path / "plugin.yaml"
    path.write_text(YAML)
    return path


def parse_line(*words):
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plugin.register()
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    return parser.parse_args(words)


def parse(value):
    return parse_line("--speculative-config", value).speculative_config


def test_the_entry_point_is_installed():
    [entry] = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "vllm_spec_plugin"]
    assert entry.load() is plugin.register


def test_registering_twice_wraps_once():
    plugin.register()
    first = EngineArgs.create_engine_config
    plugin.register()
    assert EngineArgs.create_engine_config is first


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
    engine_args._log_once.cache_clear()
    for arguments in forms(tmp_path / "none.yaml"):
        before = dict(vars(arguments))
        built = engine_args._configure(arguments, functools.partial(getattr, arguments, "speculative_config"))
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
            engine_args._configure(arguments, create)
        [(speculative, additional)] = translated
        assert (speculative["method"], speculative["num_speculative_tokens"]) == ("custom_class", 3)
        assert additional == {**vllm_spec_plugin.speculative_config(config_path), "mine": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({KEY: "{}/none.yaml"}, "none.yaml: no such file"),
        ({KEY: 5}, "vllm_spec_plugin: got 5; allowed: the path of a plugin.yaml"),
        ({KEY: "{}/plugin.yaml", "method": "ngram"}, "got method beside a plugin.yaml"),
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
    with pytest.raises(ConfigError, match=r"additional_config\.vllm_spec_plugin: got .* beside speculative_config"):
        engine_args._configure(arguments, lambda: None)


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


def test_an_unsupported_vllm_is_an_error_only_when_the_plugin_is_asked_for(monkeypatch, config_path, tmp_path):
    given = parse(str(config_path))
    install(monkeypatch, tmp_path, "0.34.0", "0.34.0", ["_C_stable_libtorch.abi3.so"])
    stock = {"method": "ngram"}
    assert parse(json.dumps(stock)) == stock
    assert engine_args._configure(Arguments(speculative_config=stock), lambda: "built") == "built"
    with pytest.raises(argparse.ArgumentError, match=r"vLLM 0\.34\.0; type: "):
        parse(str(config_path))
    for call in (vllm_spec_plugin.speculative_config, create):
        with pytest.raises(ConfigError, match=r">=0\.32,<0\.34; found .* vLLM 0\.34\.0; type: "):
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
    assert engine_args._configure(stock, lambda: "built", True) == "built"
    arguments = Arguments(speculative_config=config_path, **options)
    with pytest.raises(ConfigError, match=f"^{said}"):
        engine_args._configure(arguments, lambda: pytest.fail("vLLM's part"), True)
    arguments.speculative_config = parsed
    with pytest.raises(SystemExit) as caught:
        engine_args._configure(arguments, lambda: pytest.fail("vLLM's part"), True)
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f": error: {said}" in line
    assert "; allowed: " in line


def test_vllms_create_engine_config_says_whether_it_is_for_a_server(monkeypatch, config_path):
    """Only `vllm serve` has a Rust frontend: the variable alone does not stop `LLM(...)`."""
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    monkeypatch.setattr(engine_args, "translate", lambda *given: pytest.fail("went on"))
    plugin.register()
    arguments = EngineArgs(model=str(model_path("target")), speculative_config=str(config_path))
    with pytest.raises(ConfigError, match="VLLM_USE_RUST_FRONTEND=1: "):
        arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    with pytest.raises(pytest.fail.Exception, match="went on"):
        arguments.create_engine_config(UsageContext.LLM_CLASS)


def test_what_serves_is_logged_once(config_path, monkeypatch):
    logged = []
    monkeypatch.setattr(engine_args.logger, "log", lambda level, text, message: logged.append((level, message)))
    plugin.register()
    engine_args._log_once.cache_clear()
    for _ in range(2):
        EngineArgs(
            model=str(model_path("target")), max_model_len=512, dtype="float32", speculative_config=str(config_path)
        ).create_engine_config()
    [(level, line)] = logged
    assert level == logging.INFO
    assert line.startswith(f"vllm_spec_plugin {vllm_spec_plugin.__version__} serves with vLLM ")
    assert "; V1 runner: " in line
    assert "; synchronous scheduling: " in line


class Arguments:
    """The engine arguments that translation looks at."""

    speculative_config: dict[str, Any]

    def __init__(self, **given):
        self.worker_cls, self.scheduler_cls, self.additional_config = "auto", None, {"mine": 1}
        self.async_scheduling = None
        self.model, self.tokenizer, self.revision, self.tokenizer_revision = str(model_path("target")), None, None, None
        self.trust_remote_code, self.skip_tokenizer_init = False, False
        self.tensor_parallel_size, self.max_model_len, self.load_format = 1, None, "auto"
        self.__dict__.update(given)


def test_settings_become_stock_ones(config_path):
    arguments = Arguments()
    engine_args.translate(arguments, vllm_spec_plugin.speculative_config(config_path))
    assert arguments.speculative_config["method"] == "custom_class"
    assert arguments.speculative_config["num_speculative_tokens"] == 3
    assert arguments.worker_cls in IN_WORKERS.workers.values()
    assert arguments.scheduler_cls == IN_WORKERS.schedulers[0]
    assert arguments.additional_config["mine"] == 1
    assert KEY in arguments.additional_config


@pytest.mark.parametrize("name", ["worker_cls", "scheduler_cls"])
def test_a_class_of_the_users_own_is_refused_by_name(config_path, name):
    with pytest.raises(ValueError, match=f"{name}: got 'mine.Own'"):
        engine_args.translate(Arguments(**{name: "mine.Own"}), vllm_spec_plugin.speculative_config(config_path))


def test_without_a_plugin_config_vllm_builds_what_it_would_have(monkeypatch):
    plugin.register()
    arguments = Arguments(speculative_config={"method": "ngram"})
    before = dict(vars(arguments))
    monkeypatch.setattr(engine_args, "translate", lambda *given: pytest.fail("translated a stock config"))
    assert engine_args._configure(arguments, lambda: "built") == "built"
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
    assert "already patched" in caplog.text


@pytest.fixture
def draft_config(tmp_path):
    """Writes a file whose proposer is a draft model, the bundled one unless told, and reads its settings."""

    def settings(model=None, **keys):
        proposer = {"method": "draft_model", "model": str(model or model_path("draft")), **keys}
        path = tmp_path / "plugin.yaml"
        path.write_text(json.dumps({"proposer": proposer}))
        return vllm_spec_plugin.speculative_config(path)

    return settings


@pytest.fixture
def other_draft(tmp_path):
    """The folder of a draft with another vocabulary and without weights."""
    config = json.loads((model_path("draft") / "config.json").read_text())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({**config, "vocab_size": 77}))
    return tmp_path / "other"


@pytest.fixture
def warnings(caplog):
    """What has been logged so far."""
    for name in ("vllm", "vllm.vllm_spec_plugin"):
        logging.getLogger(name).propagate = True
    caplog.set_level(logging.WARNING, logger="vllm.vllm_spec_plugin")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "vllm.vllm_spec_plugin"]


def test_a_draft_model_is_checked_against_the_engines_own_arguments(monkeypatch, draft_config, warnings):
    from vllm_spec_plugin.proposers.draft_model import pair

    calls = []

    def check_pair(*arguments):
        calls.append(arguments)
        return ["watch out"]

    monkeypatch.setattr(pair, "check_pair", check_pair)
    given = draft_config()
    arguments = Arguments(
        model="t",
        tokenizer="tt",
        revision="r",
        tokenizer_revision="tr",
        trust_remote_code=True,
        skip_tokenizer_init=True,
        tensor_parallel_size=2,
        max_model_len=512,
    )
    engine_args.translate(arguments, given)
    target = pair.ModelSource("t", "tt", "r", "tr", trust_remote_code=True, skip_tokenizer=True)
    draft = pair.ModelSource(str(model_path("draft")), trust_remote_code=True)
    assert calls == [(target, draft, 2, 512, given[KEY]["source"], None)]
    assert warnings() == ["watch out"]


def test_as_long_as_fits_is_at_most_the_targets_context(draft_config, warnings, other_draft):
    short = json.loads((other_draft / "config.json").read_text()) | {"vocab_size": 2048, "max_position_embeddings": 64}
    (other_draft / "config.json").write_text(json.dumps(short))
    for max_model_len in (None, -1):
        engine_args.translate(
            Arguments(max_model_len=max_model_len, skip_tokenizer_init=True, load_format="dummy"),
            draft_config(other_draft),
        )
    stops = [warning for warning in warnings() if "drafts end at token 64" in warning]
    assert len(stops) == 2
    assert "may have 2,048" in stops[0]


def test_a_quantisation_that_vllm_does_not_know_is_refused(draft_config):
    with pytest.raises(
        ValueError, match=r"plugin\.yaml: proposer\.quantization: got the text 'fp9'; .*did you mean fp8"
    ):
        engine_args.translate(Arguments(), draft_config(quantization="fp9"))
    engine_args.translate(Arguments(), draft_config(quantization="fp8"))


@pytest.fixture
def medusa_config(tmp_path):
    """Writes heads of the given sizes, by default the bundled target's, and a file that drafts with them."""
    import torch

    from vllm_spec_plugin.proposers.medusa.checkpoint import save_heads
    from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads

    def settings(hidden_size=256, vocab_size=2048, num_heads=3, tokens=3, **keys):
        heads = MedusaHeads(hidden_size, vocab_size, num_heads, 1)
        save_heads(heads, tmp_path / "heads", {}, torch.float16)
        proposer = {"method": "medusa", "model": "heads", **keys}
        path = tmp_path / "plugin.yaml"
        path.write_text(json.dumps({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": tokens}}))
        return vllm_spec_plugin.speculative_config(path)

    return settings


# tests/unit/proposers/medusa has every way in which heads do not fit.
@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ({"hidden_size": 128}, "128"),
        ({"tokens": 4, "tree": [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]}, "4"),
        ({"tree": "auto"}, "measured"),
    ],
    ids=["hidden size", "too few for the tree", "not measured"],
)
def test_heads_that_do_not_fit_end_a_command_line_with_one_message(medusa_config, capsys, heads, said):
    source = medusa_config(**heads)[KEY]["source"]
    with pytest.raises(ConfigError, match=said):
        create(medusa_config(**heads))
    with pytest.raises(SystemExit) as caught:
        create(parse(source))
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f": error: {source}: proposer.model: " in line
    assert said in line


def create(speculative_config):
    """What the wrapped `create_engine_config` does with these settings, up to vLLM's part."""
    arguments = Arguments(speculative_config=speculative_config, additional_config={"mine": 1})
    before = dict(vars(arguments))
    try:
        return engine_args._configure(arguments, lambda: pytest.fail("vLLM's part"))
    finally:
        assert vars(arguments) == before


def test_what_a_command_line_says_survives_the_way_into_another_process(draft_config, other_draft):
    given = parse(draft_config(other_draft)[KEY]["source"])
    with pytest.raises(SystemExit):
        create(pickle.loads(pickle.dumps(given)))


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda path: path.unlink(), "has no weights; allowed: files of safetensors"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "model.safetensors': cannot be read"),
        (lambda path: path.write_bytes(b""), "model.safetensors': cannot be read"),
    ],
    ids=["missing", "truncated", "empty"],
)
def test_a_draft_whose_weights_are_damaged_is_refused_before_the_start(draft_config, tmp_path, cut, words):
    folder = tmp_path / "draft"
    shutil.copytree(model_path("draft"), folder)
    engine_args.translate(Arguments(), draft_config(folder))
    cut(folder / "model.safetensors")
    with pytest.raises(ConfigError, match=rf"proposer\.model: .*{words}"):
        engine_args.translate(Arguments(), draft_config(folder))
    engine_args.translate(Arguments(load_format="dummy"), draft_config(folder))
