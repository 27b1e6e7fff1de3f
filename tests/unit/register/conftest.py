"""Files of settings, and logs, of tests of registration."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vllm_spec_plugin
from vllm_spec_plugin.models import model_path


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    path = tmp_path / "plugin.yaml"
    path.write_text("proposer:\n  method: ngram\ndraft_length:\n  policy: fixed\n  tokens: 3\n")
    return path


@pytest.fixture
def draft_config(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Writes a file whose proposer is a draft model, the bundled one unless told, and reads its settings."""

    def settings(model: Path | None = None, **keys: Any) -> dict[str, Any]:
        proposer = {"method": "draft_model", "model": str(model or model_path("draft")), **keys}
        path = tmp_path / "plugin.yaml"
        path.write_text(json.dumps({"proposer": proposer}))
        return vllm_spec_plugin.speculative_config(path)

    return settings


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Lists the warnings logged so far."""
    for name in ("vllm", "vllm.vllm_spec_plugin"):
        logging.getLogger(name).propagate = True
    caplog.set_level(logging.WARNING, logger="vllm.vllm_spec_plugin")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "vllm.vllm_spec_plugin"]
