"""Installations of vLLM, as files: metadata, code and compiled libraries."""

from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

import pytest

from vllm_spec_plugin.compat import installed


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    metadata: str | None = "0.33.0+cpu",
    code: str | None = "0.33.0+cpu",
    libraries: Sequence[str] = ("_C.abi3.so",),
) -> None:
    """Makes the plugin find this vLLM: version by its metadata and by its code, None for missing, and libraries."""
    if metadata is not None:
        info = folder / f"vllm-{metadata}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {metadata}\n")
    if code is not None:
        (folder / "vllm").mkdir(parents=True)
        (folder / "vllm" / "__init__.py").touch()
        (folder / "vllm" / "_version.py").write_text(f"version: str\n\n__version__ = version = '{code}'\n")
        for name in libraries:
            (folder / "vllm" / name).touch()

    def version(name: str) -> str:
        found = next(iter(distributions(name=name, path=[str(folder)])), None)
        if found is None:
            raise PackageNotFoundError(name)
        return found.version

    monkeypatch.setattr(installed, "version", version)
    monkeypatch.setattr(installed, "find_spec", lambda name: PathFinder.find_spec(name, [str(folder)]))
