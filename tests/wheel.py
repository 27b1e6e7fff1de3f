"""Builds the wheels of the working tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Tracked and new files, as in a clean checkout: a build in place would leave its folder behind.
_FILES = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
_SOURCES = ("vllm_spec_plugin", "vllm_spec_tools", "loadtests", "configs", "docs/observability")
_PAGES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
_BUILD = "from setuptools.build_meta import build_wheel; build_wheel({!r})"


def build_wheels(folder: Path, url: str = "") -> tuple[Path, Path]:
    """Returns folders with the unpacked wheels of the plugin and of the tools; see `build_files`."""
    sites = []
    for wheel in build_files(folder, url):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(wheel.parent)
        wheel.unlink()
        sites.append(wheel.parent)
    plugin, tools = sites
    return plugin, tools


def build_files(folder: Path, url: str = "") -> list[Path]:
    """Returns the wheels of the plugin and of the tools, each in a folder of its own.

    Args:
        folder: an empty one to work in.
        url: address of the project.
    """
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run([*_FILES, *_SOURCES, *_PAGES], cwd=ROOT, capture_output=True, check=True).stdout
    packed = subprocess.run(["tar", "-c", "-T", "-"], cwd=ROOT, input=listed, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=packed, check=True)
    wheels = list[Path]()
    for project, site in ((source, folder / "plugin"), (source / "vllm_spec_tools", folder / "tools")):
        done = subprocess.run(
            [sys.executable, "-c", _BUILD.format(str(site))],
            cwd=project,
            env=os.environ | {"PROJECT_URL": url},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        wheels += site.glob("*.whl")
    return wheels


def run_installed(sites: tuple[Path, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `vllm-spec` of unpacked wheels in `folder`."""
    return subprocess.run(
        [sys.executable, "-P", "-c", "from vllm_spec_plugin.command import main; main()", *words],
        cwd=folder,
        env=os.environ | {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": os.pathsep.join(map(str, sites))},
        capture_output=True,
        text=True,
    )
