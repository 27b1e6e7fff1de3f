"""A refusal names the file, option or key that is wrong, before anything starts; it exits with status 2."""

import json
import shlex
from pathlib import Path

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.training.tiny import LETTERS, saved_model
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.certify import session
from vllm_spec_tools.engines.serving import Server

CONFIGS = Path(__file__).parents[3] / "configs"
# Unknown methods of the plugin and of vLLM, which are refused without a model.
FILES = {
    "good": "{method: ngram, min_order: 3}",
    "unknown": "{method: ngarm}",
    "of-vllm": "{method: mtp}",
    "native": "{method: vllm, config: {method: nosuch}}",
    "member": "{method: cascade, proposers: [{method: suffix}, {method: vllm, config: {method: nosuch}}]}",
}
COMMANDS = ("check", "certify --model m --config", "demo --config", "bench --arm")
OF_FILES = {
    "unknown.yaml": "unknown.yaml: proposer.method: got the text 'ngarm'; allowed: cascade, draft_model, ",
    "of-vllm.yaml": "if it is a vLLM method: {method: vllm, config: {method: mtp}}",
    "native.yaml": "proposer.config.method: got the text 'nosuch'; allowed: ngram, ",
    "member.yaml": "proposer.proposers[1].config.method: got the text 'nosuch'; allowed: ngram, ",
}
CERTIFY = f"certify --model {model_path('target')} --config {CONFIGS / 'ngram.yaml'}"
TRAIN = "--data data.txt --out out --max-length 32 --model model"
REFUSALS = [
    *((f"{command} {file}", message) for command in COMMANDS for file, message in OF_FILES.items()),
    ("check none.yaml", "none.yaml: no such file; allowed: a readable YAML file"),
    ("check --model x", "Missing argument 'FILE...'"),
    ("check good.yaml -tp 2", "-tp is an option of vllm serve; allowed: with --model only"),
    ("check good.yaml --model x --speculative-config {}", "--speculative-config: given by FILE"),
    ("check good.yaml --model x --port 80 more.yaml", "got 'more.yaml' after an option; allowed: FILEs first"),
    (f"{CERTIFY} --model /nowhere/model", "--model /nowhere/model: no such folder"),
    (f"{CERTIFY} --config /nowhere/plugin.yaml", "/nowhere/plugin.yaml"),
    (f"{CERTIFY} --prompts /nowhere/prompts.jsonl", "--prompts /nowhere/prompts.jsonl: cannot be read"),
    (f"{CERTIFY} --false-alarm 0.5", "--false-alarm"),
    (f"{CERTIFY} --minutes 0", "--minutes"),
    (f"{CERTIFY} -- --speculative-config {{}}", "--speculative-config; use --config"),
    (f"{CERTIFY} -- dtype", "allowed after --: engine options of vllm serve"),
    ("demo --config missing.yaml", "missing.yaml"),
    ("demo --html no/a.html", "--html no/a.html"),
    ("demo --model ./nothing", "--model ./nothing: no such folder"),
    ("init ngarm", "METHOD: got the text 'ngarm'; allowed: cascade, draft_model"),
    ("init ngram --model a/b", "--model: got 'a/b', but ngram has no model; allowed: leave it out"),
    ("init ngram --out good.yaml", "good.yaml: exists; allowed: a new file"),
    ("convert '{method: ngram}'", "JSON: not JSON: line 1, column 2"),
    ("convert '[1]'", "JSON: got a list; allowed: a JSON object"),
    (f"train-medusa {TRAIN} --data /no/such", "--data '/no/such': no such file or folder"),
    (f"train-medusa {TRAIN} --data stdlib", "--data stdlib: got other data beside it"),
    (f"train-medusa {TRAIN} --model /no/such", "--model /no/such: no such folder"),
    (f"train-medusa {TRAIN} --from /no/such", "--from: there is no folder '/no/such'"),
    (f"train-medusa {TRAIN} --max-length 65", "--max-length: got 65; allowed: from 6"),
    (f"train-medusa {TRAIN} --steps 0", "--steps: got 0; allowed: from 1"),
    (f"train-medusa {TRAIN} --out data.txt/out", "data.txt/out/checkpoint: Not a directory"),
    (f"train-medusa {TRAIN} --heads 0", "--heads"),
    (f"train-medusa {TRAIN} --self-distill many", "--self-distill"),
    (f"train-medusa {TRAIN} --dtype x", "--dtype"),
    (f"train-eagle3 {TRAIN} --draft-vocab 31", "--draft-vocab: got 31; allowed: up to 30"),
]
OF_JSON = [
    ({"method": "nosuch"}, "method: got the text 'nosuch'; allowed: ngram, "),
    ({"method": ["ngram"]}, "method: got a list; allowed: ngram, "),
    ({"method": "ngrm"}, "did you mean ngram?"),
    ({"model": 5}, "model: got 5; allowed: a folder or a hub name"),
    ({"method": "ngram", "num_speculative_tokens": -3}, "num_speculative_tokens: got -3; allowed: a whole number"),
    ({"num_speculative_tokens": 3}, "proposer.config: got neither method nor model"),
    ({"method": "mtp", "num_spec_tokens": 3}, "num_spec_tokens: unknown to vLLM "),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    saved_model(folder / "model", num_hidden_layers=3)
    (folder / "data.txt").write_text(LETTERS * 30)
    for name, proposer in FILES.items():
        (folder / f"{name}.yaml").write_text(f"proposer: {proposer}\n")
    return folder


def no_start(*arguments: object) -> None:
    raise AssertionError("an engine starts")


@pytest.mark.parametrize(("command", "message"), REFUSALS, ids=[command for command, _ in REFUSALS])
def test_a_command_names_what_it_refuses(
    command: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(session, "_engine", no_start)
    monkeypatch.setattr(Server, "start", no_start)
    before = sorted(folder.rglob("*"))
    assert_mistake(run(*shlex.split(command)), message)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("given", "message"), OF_JSON)
def test_vllms_json_is_refused_by_its_key(given: dict[str, object], message: str) -> None:
    assert_mistake(run("convert", json.dumps(given)), message)
