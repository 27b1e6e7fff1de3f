"""Draft models that are not as they should be."""

import json
import shutil
from pathlib import Path

from vllm_spec_plugin.tools.demo import model_path


def edited_draft(folder: Path, **config: object) -> Path:
    """A copy of the bundled draft with other entries in its config.json."""
    draft = folder / "draft"
    shutil.copytree(model_path("draft"), draft)
    path = draft / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return draft


def plugin_yaml(folder: Path) -> str:
    """A configuration that drafts with the model beside it in every step."""
    path = folder / "plugin.yaml"
    path.write_text("proposer: {method: draft_model, model: draft}\ndraft_length: {policy: fixed}\n")
    return str(path)
