"""Builds the wheel of the working tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Tracked and new files, as in a clean checkout: a build in place would leave its folder behind.
_FILES = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
_SOURCES = ("vllm_spec_plugin", "loadtests", "configs", "docs/observability")
_PAGES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def build_wheel(folder: Path, url: str = "") -> Path:
    """Returns a folder with the unpacked wheel.

    Args:
        folder: an empty one to work in.
        url: address of the project.
    """
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run([*_FILES, *_SOURCES, *_PAGES], cwd=ROOT, capture_output=True, check=True).stdout
    packed = subprocess.run(["tar", "-c", "-T", "-"], cwd=ROOT, input=listed, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=packed, check=True)
    build = "from setuptools.build_meta import build_wheel; build_wheel('../dist')"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, env=os.environ | {"PROJECT_URL": url}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run_installed(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `vllm-spec` of the unpacked wheel in `folder`."""
    return subprocess.run(
        [sys.executable, "-P", "-c", "from vllm_spec_plugin.cli import app; app()", *words],
        cwd=folder,
        env=os.environ | {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
