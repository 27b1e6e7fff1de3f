"""Compiled functions are cached where a folder is writable, and work where none is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import logging
logging.basicConfig()
from vllm_spec_plugin.jit import compiled

@compiled
def half(x: float) -> float:
    return x / 2

@compiled
def double(x: float) -> float:
    return x * 2

import numba
print(half(3.0), double(1.5), numba.config.CACHE_DIR)
"""


def run(folder: Path, **environment: str) -> tuple[str, str]:
    """Runs a file whose folder, as numba is told, has no cache of its own; the result also holds for root."""
    path = folder / "script.py"
    path.write_text(CODE)
    # Without these numba would find the file's folder, and root may write anywhere.
    where = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", **environment}
    kept = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "VLLM_CACHE_ROOT")}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True, env=kept | where)
    return done.stdout.strip(), done.stderr


def cached(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbi"))


@pytest.mark.parametrize("environment", [{"NUMBA_CACHE_DIR": "/proc/none"}, {"VLLM_CACHE_ROOT": "/proc/none"}])
def test_without_a_writable_folder_code_is_compiled_at_each_start(tmp_path: Path, environment: dict[str, str]) -> None:
    out, log = run(tmp_path, **environment)
    assert out == f"1.5 3.0 {environment.get('NUMBA_CACHE_DIR', '')}".strip()
    [line] = log.splitlines()
    assert "set NUMBA_CACHE_DIR or VLLM_CACHE_ROOT to a writable folder" in line


def test_numbas_own_folder_comes_before_vllms(tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "root"
    assert run(tmp_path, NUMBA_CACHE_DIR=str(own), VLLM_CACHE_ROOT=str(root)) == (f"1.5 3.0 {own}", "")
    assert len(cached(own)) == 2
    assert not root.exists()


def test_vllms_folder_is_used_where_no_other_is_writable(tmp_path: Path) -> None:
    assert run(tmp_path, VLLM_CACHE_ROOT=str(tmp_path / "root")) == ("1.5 3.0", "")
    assert len(cached(tmp_path / "root" / "numba")) == 2
