"""`vllm-spec check` and the shape of the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from tests.unit.cli.running import run
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.cli import app

CONFIGS = Path(__file__).parents[3] / "configs"
GOOD = "proposer: {method: ngram, min_order: 3}\n"


def write(folder: Path, text: str, name: str = "plugin.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_good_file_prints_every_setting_and_where_it_is_from(tmp_path: Path) -> None:
    result = run("check", write(tmp_path, GOOD))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "plugin.yaml: OK" in result.stdout
    *lines, last = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    assert last == "  not checked: the model, its weights and the server's options (give --model)"
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows == {
        "proposer.method": ["ngram", "given"],
        "proposer.min_order": ["3", "given"],
        "proposer.shared": ["false", "default"],
        "proposer.shared_tokens": ["not", "used", "default"],
        "proposer.shared_scope": ["not", "used", "default"],
        "draft_length.policy": ["optimal", "default"],
        "draft_length.tokens": ["4", "default"],
        "draft_length.half_life": ["64.0", "default"],
        "verification.lenience": ["1.0", "(exact)", "default"],
        "verification.method": ["coupled", "on", "V2,", "block", "on", "V1", "default"],
        "stream_granularity": ["free", "default"],
        "stream_tokens": ["not", "used", "default"],
    }


def test_former_keys_are_accepted_with_a_note_each(tmp_path: Path) -> None:
    member = "{method: ngram, mode: frequency, max_order: 99, window: 1}"
    text = (
        f"proposer: {{method: cascade, proposers: [{member}, {{method: prediction}}]}}\ndraft_length: {{explore: 0.1}}"
    )
    path = write(tmp_path, text)
    result = run("check", path)
    assert result.exit_code == 0
    keys = [*(f"proposer.proposers[0].{key}" for key in ("mode", "max_order", "window")), "draft_length.explore"]
    starts = [line.partition(": no effect: ")[0] for line in result.stderr.splitlines()]
    assert starts == [f"warning: {path}: {key}" for key in keys]


def test_lenience_below_one_is_called_lossy(tmp_path: Path) -> None:
    out = run("check", write(tmp_path, GOOD + "verification: {lenience: 0.9}")).stdout
    assert "LOSSY" in out
    assert "exact" not in out


def test_every_file_is_checked_and_one_bad_one_fails_all(tmp_path: Path) -> None:
    bad = write(tmp_path, "proposer: {method: ngarm}", "bad.yaml")
    good = write(tmp_path, GOOD)
    result = run("check", tmp_path / "none.yaml", bad, good)
    assert result.exit_code == 2
    assert "plugin.yaml: OK" in result.stdout
    assert result.stderr.splitlines() == [
        f"{tmp_path}/none.yaml: no such file; allowed: a readable YAML file",
        f"{bad}: proposer.method: got the text 'ngarm'; allowed: cascade, draft_model, eagle3, grammar, medusa, "
        "ngram, prediction, suffix, vllm; did you mean ngram?",
    ]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the hub unreachable, as it is found to be, so that nothing tries again."""
    from vllm_spec_tools.engines import serve_options

    monkeypatch.setattr(serve_options, "use_cache_if_offline", lambda: monkeypatch.setenv("HF_HUB_OFFLINE", "1"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-tp", "2"], "-tp is an option of vllm serve; allowed: with --model only"),
        (["--model", "x", "--speculative-config", "{}"], "--speculative-config: given by FILE"),
        (["--model", "x", "--port", "80", "more.yaml"], "got 'more.yaml' after an option; allowed: FILEs first"),
    ],
)
def test_a_command_line_that_makes_no_sense(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = run("check", write(tmp_path, GOOD), *arguments)
    assert result.exit_code == 2
    assert said in " ".join(re.sub(r"[│\s]+", " ", result.stderr).split())


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("model", ["no/such", "x" * 200, "a\x1b"])
def test_a_model_that_cannot_be_read(tmp_path: Path, model: str) -> None:
    result = run("check", write(tmp_path, GOOD), "--model", model)
    assert result.exit_code == 2
    assert result.stdout == ""  # nothing is well where the model is not known
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("--model '")
    assert "no such folder, not in the cache, and the hub cannot be reached" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_file_from_standard_input() -> None:
    for text, status in ((GOOD, 0), ("proposer: {Method: ngram}", 2), (b"\xff", 2)):
        result = CliRunner().invoke(app, ["check", "-"], input=text)
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


def test_the_hub_is_asked_once_whether_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_spec_tools.engines.serve_options import use_cache_if_offline

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    use_cache_if_offline()
    assert os.environ["HF_HUB_OFFLINE"] == "1"


DRAFT = str(model_path("draft"))
TARGET = str(model_path("target"))
HEADS = str(model_path("medusa"))


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"vocab_size": 77}, 2, "has a vocabulary of 77 tokens, the target"),
        ({"max_position_embeddings": 64}, 0, "drafts end at token 64"),
    ],
)
def test_a_draft_that_does_not_fit_the_model_or_with_reservations(
    tmp_path: Path, change: dict[str, int], status: int, said: str
) -> None:
    shutil.copytree(DRAFT, tmp_path / "own")
    config = json.loads(Path(DRAFT, "config.json").read_text())
    write(tmp_path / "own", json.dumps({**config, **change}), "config.json")
    file = write(tmp_path, "proposer: {method: draft_model, model: own}")
    result = run("check", file, "--model", TARGET)
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
    [line] = result.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(("model", "status"), [(HEADS, 0), ("./none", 2)])
def test_heads_are_looked_at_without_a_model_too_but_nothing_is_compared(
    tmp_path: Path, model: str, status: int
) -> None:
    result = run("check", write(tmp_path, f"proposer: {{method: medusa, model: {model}}}"))
    assert result.exit_code == status
    assert ("OK" in result.stdout) == (status == 0)
    assert "served" not in result.stdout


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


def test_a_forwarded_command_gets_its_whole_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(text: str, count: int = 1) -> None:
        """A stand-in's own help."""
        print(f"{text=} {count=}")

    module = ModuleType("stand_in")
    vars(module).update(demo=stand_in)
    monkeypatch.setitem(sys.modules, "vllm_spec_tools.cli.demo", module)
    assert run("demo", "--count", "3", "--", "--x").stdout == "text='--x' count=3\n"
    assert "A stand-in's own help" in run("demo", "--help").stdout
    assert run("demo", "--count", "x", "y").exit_code == 2


def test_weight_files_are_read_and_what_is_not_checked_is_said(tmp_path: Path) -> None:
    shutil.copytree(model_path("target"), tmp_path / "target")
    path = write(tmp_path, "proposer: {method: draft_model, model: vllm_spec_plugin/models/draft}")
    result = run("check", path, "--model", tmp_path / "target", "--dtype", "float32")
    assert result.exit_code == 0, result.stderr
    [line] = [line for line in result.stdout.splitlines() if "not checked" in line]
    assert "fit in memory" in line
    weights = tmp_path / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = run("check", path, "--model", tmp_path / "target", "--dtype", "float32")
    assert result.exit_code == 2
    assert f"--model: '{weights}': cannot be read" in result.stderr


def test_more_ranks_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's CPU backend ends such a server with an assertion in its own code."""
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    words = ("check", CONFIGS / "suffix.yaml", "--model", model_path("target"), "--tensor-parallel-size", "2")
    result = run(*words)
    assert result.exit_code == 2
    assert "--pipeline-parallel-size 1: got 2 ranks, but this process may use 1 core, and" in result.stderr
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|0")
    assert run(*words).exit_code == 0
