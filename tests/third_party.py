"""Proposers of other distributions: put on the path as pip would, without pip."""

import functools
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from vllm_spec_plugin.proposers import registry

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


def install(folder: Path, distribution: str, entries: dict[str, str], modules: dict[str, str]) -> Path:
    """Installs a distribution with proposers.

    Args:
        folder: to be put on the path.
        distribution: its name; its version is 1.
        entries: value of each entry point, by method.
        modules: text of each module, by name.
    """
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    metadata = folder / f"{distribution}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines, ""]))
    return folder


def install_example(folder: Path) -> Path:
    """Installs the proposer of CONTRIBUTING.md, as it stands there."""
    code, stanza = (re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)[0] for kind in ("python", "toml"))
    entries = tomllib.loads(stanza)["project"]["entry-points"][registry.GROUP]
    return install(folder, "bigram-proposer", entries, {"bigram_proposer": code})


def find(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process find what is installed in `folder`, until the test ends."""
    monkeypatch.syspath_prepend(folder)
    for module in folder.glob("*.py"):
        monkeypatch.delitem(sys.modules, module.stem, raising=False)
    importlib.invalidate_caches()
    # What was found is remembered; the test's is not to outlive it.
    for name in ("_entry_points", "_load"):
        monkeypatch.setattr(registry, name, functools.cache(getattr(registry, name).__wrapped__))
