"""Which vLLM is supported, and what is said of any other."""

import sys

import pytest

from tests.unit.register.installations import install
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
