"""Which vLLM is supported, and what is said of any other."""

import sys
from pathlib import Path

import pytest

from tests.unit.cli.running import run
from tests.unit.register.installations import install
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register.version import check_vllm
from vllm_spec_plugin.schema.errors import ConfigError

CPU = "0.33.0+cpu"
CUDA_LIBRARIES = ["_C_stable_libtorch.abi3.so"]
CUDA_COMMAND = "run: `pip install --force-reinstall 'vllm>=0.32,<0.34'`"
CPU_COMMAND = "run: `make clean setup`"


@pytest.mark.parametrize(
    ("metadata", "code", "libraries"),
    [
        (CPU, CPU, ["_C.abi3.so"]),
        ("0.32.0+cpu", "0.32.0", ["_C_AVX2.abi3.so"]),
        ("0.33.0", "0.33.0", CUDA_LIBRARIES),
        ("0.33.1.dev0+g12", "0.33.1.dev0+g12.d2026", CUDA_LIBRARIES),
    ],
)
def test_a_whole_vllm_is_accepted(monkeypatch, tmp_path, metadata, code, libraries):
    install(monkeypatch, tmp_path, metadata, code, libraries)
    check_vllm()


@pytest.mark.parametrize(
    ("metadata", "code", "libraries", "found", "command"),
    [
        ("0.31.1", "0.31.1", CUDA_LIBRARIES, "vLLM 0.31.1", CUDA_COMMAND),
        ("0.34.0+cpu", "0.34.0+cpu", ["_C.abi3.so"], "vLLM 0.34.0+cpu", CPU_COMMAND),
        (None, None, [], "no vLLM", CUDA_COMMAND),
        (CPU, None, [], f"half-assembled: its metadata says {CPU}, but there is no package vllm", CPU_COMMAND),
        (None, CPU, ["_C.abi3.so"], "no installed distribution is named vllm", "`make clean setup`"),
        ("0.32.0+cpu", "0.33.0", CUDA_LIBRARIES, "its metadata says 0.32.0+cpu, but ", CPU_COMMAND),
        (CPU, CPU, CUDA_LIBRARIES, "no compiled libraries of a CPU build (_C.*so or _C_AVX*so)", CPU_COMMAND),
        ("0.33.0", "0.33.0", [], "no compiled libraries of any build", CUDA_COMMAND),
    ],
    ids=["old", "new", "none", "no code", "no metadata", "two versions", "libraries of CUDA", "no libraries"],
)
def test_any_other_is_one_message(monkeypatch, tmp_path, metadata, code, libraries, found, command):
    install(monkeypatch, tmp_path, metadata, code, libraries)
    with pytest.raises(ConfigError) as caught:
        check_vllm()
    [line] = str(caught.value).splitlines()
    assert "supports vLLM >=0.32,<0.34; found in " + sys.prefix in line
    assert found in line
    assert command in line
    assert ("without a plugin.yaml this vLLM serves unchanged" in line) == (found == f"vLLM {metadata}")


TARGET = str(model_path("target"))


@pytest.mark.parametrize(
    "line",
    [
        ["check", "FILE", "--model", TARGET],
        ["bench", "--arm", "none"],
        ["bench", "--arm", "none", "--", "--max-model-len", "512"],
        ["plan", "--model", TARGET, "--prompts", "PROMPTS"],
        ["certify", "--model", TARGET, "--config", "FILE"],
        ["demo", "--quick"],
    ],
    ids=" ".join,
)
def test_commands_that_need_a_vllm_end_with_the_message(monkeypatch, tmp_path: Path, line):
    install(monkeypatch, tmp_path, "0.34.0", "0.34.0", CUDA_LIBRARIES)
    files = {"FILE": tmp_path / "plugin.yaml", "PROMPTS": tmp_path / "prompts.jsonl"}
    files["FILE"].write_text("proposer: {method: ngram}\n")
    files["PROMPTS"].write_text('{"prompt": "def add(a, b):", "max_tokens": 8}\n')
    result = run(*(files.get(word, word) for word in line))
    assert result.exit_code == 2
    assert "found in" in result.stderr
    assert "vLLM 0.34.0; run: `pip install" in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
