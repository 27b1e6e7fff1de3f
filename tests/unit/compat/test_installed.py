"""The methods of vLLM's speculative config, read from its source."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from vllm_spec_plugin.compat import installed

SOURCE = """
from typing import Literal
HeadTypes = Literal["eagle", "mtp"]
SpeculativeMethod = Literal["ngram", HeadTypes]
Others = Literal["x"]
"""


@pytest.mark.parametrize(
    ("source", "methods"), [(SOURCE, ("ngram", "eagle", "mtp")), (SOURCE.replace("SpeculativeMethod", "Method"), ())]
)
def test_methods_are_read_from_nested_literals(
    source: str, methods: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "speculative.py").write_text(source)
    spec = ModuleSpec("vllm", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(installed, "find_spec", lambda name: spec)
    assert installed.speculative_methods() == methods


def test_without_vllm_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    assert installed.speculative_methods() == ()
