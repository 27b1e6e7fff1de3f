"""Draft models that are not as they should be."""

import json
import shutil
from pathlib import Path

from vllm_spec_plugin.models import model_path


def edited_draft(folder: Path, **config: object) -> Path:
    """A copy of the bundled draft with other entries in its config.json."""
    draft = folder / "draft"
    shutil.copytree(model_path("draft"), draft)
    path = draft / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return draft


def plugin_yaml(folder: Path, **keys: object) -> str:
    """A configuration that drafts with the model beside it in every step; `keys` are others of its proposer."""
    path = folder / "plugin.yaml"
    proposer = {"method": "draft_model", "model": "draft"} | keys
    path.write_text(json.dumps({"proposer": proposer, "draft_length": {"policy": "fixed"}}))
    return str(path)
