"""Tests options that name a model."""

from pathlib import Path

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.model_source import model_source


def test_a_model_is_a_folder_that_is_there_or_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide").mkdir()
    with pytest.raises(UserError, match=r"--model wide: the folder has no config.json; allowed: a model's folder"):
        model_source("--model", "wide", "target")
    (tmp_path / "wide" / "config.json").write_text("{}")
    assert model_source("--model", "wide", "target") == str(tmp_path / "wide")
    assert model_source("--model", "some/model", "target") == "some/model"
    with pytest.raises(UserError, match=r"--model \./none: no such folder"):
        model_source("--model", "./none", "target")
