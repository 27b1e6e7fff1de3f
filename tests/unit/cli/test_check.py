"""`vllm-spec check`, `doctor` and the shape of the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.unit.cli.running import run
from vllm_spec_plugin.models import model_path

CONFIGS = Path(__file__).parents[3] / "configs"
GOOD = "proposer: {method: ngram, min_order: 3}\n"
TARGET, DRAFT, HEADS = (str(model_path(name)) for name in ("target", "draft", "medusa"))


def write(folder: Path, text: str, name: str = "plugin.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def rows(output: str) -> dict[str, str]:
    """Lines of tables, by their first column."""
    split = [line.strip().split("  ", 1) for line in output.splitlines() if line.startswith("  ")]
    return {row[0]: row[1].strip() for row in split if len(row) == 2}


def test_a_good_file_prints_every_setting_and_where_it_is_from(tmp_path: Path) -> None:
    result = run("check", write(tmp_path, GOOD))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "plugin.yaml: OK" in result.stdout
    assert result.stdout.endswith("  not checked: the model, its weights and the server's options (give --model)\n")
    found = {key: re.sub(" +", " ", value) for key, value in rows(result.stdout).items()}
    expected = {
        "proposer.method": "ngram given",
        "proposer.min_order": "3 given",
        "proposer.shared": "false default",
        "proposer.shared_tokens": "not used default",
        "draft_length.policy": "optimal default",
        "verification.lenience": "1.0 (exact) default",
    }
    assert found | expected == found
    lossy = run("check", write(tmp_path, GOOD + "verification: {lenience: 0.9}")).stdout
    assert "LOSSY" in lossy
    assert "exact" not in lossy


def test_former_keys_are_accepted_with_a_note_each(tmp_path: Path) -> None:
    members = "[{method: ngram, mode: frequency, window: 1}, {method: prediction}]"
    text = f"proposer: {{method: cascade, proposers: {members}}}\ndraft_length: {{explore: 0.1}}"
    result = run("check", write(tmp_path, text))
    assert result.exit_code == 0
    starts = [line.partition(": no effect: ")[0].rpartition(" ")[2] for line in result.stderr.splitlines()]
    assert starts == ["proposer.proposers[0].mode", "proposer.proposers[0].window", "draft_length.explore"]


def test_every_file_is_checked_and_one_bad_one_fails_all(tmp_path: Path) -> None:
    bad, good = write(tmp_path, "proposer: {method: ngarm}", "bad.yaml"), write(tmp_path, GOOD)
    result = run("check", tmp_path / "none.yaml", bad, good)
    assert result.exit_code == 2
    assert "plugin.yaml: OK" in result.stdout
    missing, wrong = result.stderr.splitlines()
    assert missing.startswith(f"{tmp_path}/none.yaml: ")
    assert wrong.startswith(f"{bad}: proposer.method: ")
    assert wrong.endswith("; did you mean ngram?")


def test_options_of_a_server_need_a_model() -> None:
    result = run("doctor", "--pipeline-parallel-size", "2")
    assert (result.exit_code, "with --model only" in result.stderr) == (2, True)


@pytest.mark.parametrize("model", ["no/such", "a\x1b"])
def test_a_model_that_cannot_be_read(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is unreachable, as it is found to be, so that nothing tries again."""
    from vllm_spec_tools.engines import serve_options

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    serve_options.use_cache_if_offline()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = run("check", write(tmp_path, GOOD), "--model", model)
    assert (result.exit_code, result.stdout) == (2, "")  # nothing is well where the model is not known
    [line] = result.stderr.splitlines()
    assert line.startswith("--model '")
    assert "no such folder, not in the cache, and the hub cannot be reached" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(("text", "status"), [(GOOD, 0), ("proposer: {Method: ngram}", 2), (b"\xff", 2)])
def test_a_file_from_standard_input(text: str | bytes, status: int) -> None:
    result = run("check", "-", input=text)
    assert result.exit_code == status
    assert (result.stdout if status == 0 else result.stderr).startswith("stdin: ")


def test_json_says_what_the_text_says(tmp_path: Path) -> None:
    bad = write(tmp_path, "proposer: {Method: ngram}", "bad.yaml")
    result = run("check", write(tmp_path, GOOD), bad, "--model", TARGET, "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    found = json.loads(result.stdout)
    assert (found["schema"], found["ok"], found["model"]["vocab_size"]) == (1, False, 2048)
    good, wrong = found["files"]
    assert (good["ok"], good["errors"], good["config"]["proposer"]["min_order"]) == (True, [], 3)
    assert good["drafting"] == ["token-only, V1"]
    assert good["engine"]["vllm"].startswith(f"{version('vllm')} (")
    assert good["engine"]["runner"].startswith("V1 runner: V2 needs Triton")
    assert good["engine"]["scheduling"].startswith("synchronous scheduling: ")
    assert (wrong["ok"], wrong["config"], wrong["engine"]) == (False, None, None)
    assert "did you mean method?" in wrong["errors"][0]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"vocab_size": 77}, 2, "has a vocabulary of 77 tokens, the target"),
        ({"max_position_embeddings": 64}, 0, "warning: "),
    ],
)
def test_a_draft_that_does_not_fit_the_model_or_with_reservations(
    tmp_path: Path, change: dict[str, int], status: int, said: str
) -> None:
    shutil.copytree(DRAFT, tmp_path / "own")
    config = json.loads(Path(DRAFT, "config.json").read_text())
    write(tmp_path / "own", json.dumps({**config, **change}), "config.json")
    result = run("check", write(tmp_path, "proposer: {method: draft_model, model: own}"), "--model", TARGET)
    assert result.exit_code == status
    assert said in result.stderr
    assert ("drafting: own proposers, V1, with a draft model" in result.stdout) == (status == 0)


@pytest.mark.parametrize(
    ("proposer", "drafting"),
    [
        ({"method": "ngram"}, "token-only, V1"),
        ({"method": "draft_model", "model": DRAFT}, "own proposers, V1, with a draft model"),
        ({"method": "medusa", "model": HEADS, "tree": "auto"}, "own proposers, V1, with trees"),
    ],
)
def test_the_model_and_the_way_to_draft_are_printed(tmp_path: Path, proposer: dict[str, object], drafting: str) -> None:
    result = run("check", write(tmp_path, json.dumps({"proposer": proposer})), "--model", TARGET)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "LlamaForCausalLM" in result.stdout
    assert "2,048 tokens" in result.stdout
    *_, engine, last = result.stdout.splitlines()
    assert last == f"  drafting: {drafting}"
    assert engine.startswith(f"  served by vLLM {version('vllm')} (")
    assert f"; V1 runner: {'trees need V1, and ' if 'trees' in drafting else ''}V2 needs Triton" in engine
    assert "; synchronous scheduling: " in engine


@pytest.mark.parametrize(
    ("options", "variable", "said"),
    [
        ("", "VLLM_USE_V2_MODEL_RUNNER=1", "VLLM_USE_V2_MODEL_RUNNER=1: V2 needs Triton"),
        ("", "VLLM_USE_RUST_FRONTEND=1", "VLLM_USE_RUST_FRONTEND=1: checks of requests"),
        ("", "VLLM_SPEC_PLUGIN=0", "VLLM_SPEC_PLUGIN=0: a server would serve without speculation; unset it"),
        ("--async-scheduling", "", "--async-scheduling: vLLM's V1 runner has no asynchronous scheduling"),
        ("--pipeline-parallel-size 2 --port 80", "", "cannot be served here: --pipeline-parallel-size: got 2; "),
        # vLLM's CPU backend ends such a server with an assertion in its own code.
        ("--tensor-parallel-size 3", "VLLM_CPU_OMP_THREADS_BIND=auto", "got 3 ranks, but this process may use 2 cores"),
    ],
)
def test_a_server_that_cannot_serve_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, variable: str, said: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    if variable:
        monkeypatch.setenv(*variable.split("="))
    file = write(tmp_path, f"proposer: {{method: draft_model, model: {DRAFT}}}")
    result = run("check", file, "--model", TARGET, *options.split())
    assert result.exit_code == 2
    assert "OK" not in result.stdout
    assert said in result.stderr.splitlines()[0]


@pytest.mark.parametrize(("model", "status"), [(HEADS, 0), ("./none", 2)])
def test_heads_are_looked_at_without_a_model_too(tmp_path: Path, model: str, status: int) -> None:
    result = run("check", write(tmp_path, f"proposer: {{method: medusa, model: {model}}}"))
    assert (result.exit_code, "OK" in result.stdout) == (status, status == 0)
    assert "served" not in result.stdout


def test_weight_files_are_read_and_what_is_not_checked_is_said(tmp_path: Path) -> None:
    shutil.copytree(TARGET, tmp_path / "target")
    words = ("check", write(tmp_path, GOOD), "--model", tmp_path / "target", "--dtype", "float32")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    [line] = [line for line in result.stdout.splitlines() if "not checked" in line]
    assert "fit in memory" in line
    weights = tmp_path / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    for command in (words, ("doctor", "--model", tmp_path / "target")):
        result = run(*command)
        assert result.exit_code == 2
        assert f"--model: '{weights}': cannot be read" in result.stderr


def test_help_is_cheap_and_names_every_command() -> None:
    code = (
        "import sys\nfrom vllm_spec_tools.cli import app\n"
        "try: app(['--help'])\n"
        "finally: print([m for m in ('vllm', 'torch', 'transformers', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("check", "train-medusa", "bench", "demo"):
        assert re.search(rf"\b{command}\b", done.stdout)


def test_a_sound_installation_has_no_problems() -> None:
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, ""), result.stdout
    found = rows(result.stdout)
    assert found["seen by vLLM"].startswith("yes")
    assert found["vLLM"].startswith(f"{version('vllm')} (")
    assert found["runner with drafts"].startswith("V1 runner: V2 needs Triton")
    assert found["scheduling with drafts"].startswith("synchronous scheduling: ")


@pytest.mark.parametrize(
    ("variable", "row", "said"),
    [
        ("VLLM_USE_V2_MODEL_RUNNER=1", "with drafts", "VLLM_USE_V2_MODEL_RUNNER=1: "),
        ("VLLM_PLUGINS=another", "seen by vLLM", "no: VLLM_PLUGINS=another leaves vllm_spec_plugin out"),
        ("VLLM_SPEC_PLUGIN=0", "seen by vLLM", "no: VLLM_SPEC_PLUGIN=0"),
    ],
)
def test_what_keeps_drafts_out_is_a_problem(
    variable: str, row: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable.split("="))
    result = run("doctor")
    assert result.exit_code == 2
    assert rows(result.stdout)[row].startswith(said)
    assert "runner with drafts" not in rows(result.stdout)


def test_doctor_says_what_is_served_for_a_model_and_the_rule_that_refuses() -> None:
    result = run("doctor", "--model", TARGET, "--config", CONFIGS / "draft_model.yaml")
    assert result.exit_code == 0, result.stderr
    assert rows(result.stdout)["trees"] == "served"
    assert "draft_model.yaml: valid and fits" in result.stdout
    assert f"  served by vLLM {version('vllm')} (" in result.stdout
    refused = run("doctor", "--model", TARGET, "--pipeline-parallel-size", "2").stdout
    assert (rows(refused)["own proposers, V1"], rows(refused)["token-only, V2"]) == ("refused", "served")
    assert "--pipeline-parallel-size: got 2; drafts were not tested across pipeline stages" in refused


def test_doctor_says_how_back_ends_of_structured_output_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(package: str) -> str:
        if package == "outlines_core":
            raise PackageNotFoundError
        return version(package)

    monkeypatch.setattr(import_module("vllm_spec_tools.cli.doctor"), "version", found)
    result = run("doctor", "--config", CONFIGS / "grammar.yaml")
    assert result.exit_code == 0, result.stderr
    told = rows(result.stdout)
    assert told["xgrammar"].startswith("drafts from forced texts")
    assert told["xgrammar"].endswith(f"installed: {version('xgrammar')}")
    assert told["outlines"].startswith("drafts from masks")
    assert told["outlines"].endswith("not installed")
    assert "back ends" not in run("doctor", "--config", CONFIGS / "suffix.yaml").stdout
