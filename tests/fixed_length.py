"""The shipped configurations with drafts of a fixed length: what tests can count on, however busy the machine is."""

import functools
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import yaml

from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path

CONFIGS = Path(__file__).parents[1] / "configs"
# vLLM's speculative config of the bundled draft model, in JSON, without a number of tokens.
STOCK_DRAFT_MODEL = json.dumps({"method": "draft_model", "model": str(model_path("draft"))})


@functools.cache
def fixed_length(name: str, tokens: int = 4) -> str:
    """Path of a file like `configs/NAME.yaml` in all but the draft length."""
    config = load_config(CONFIGS / f"{name}.yaml")
    data = config.model_dump(mode="json", include={"proposer", "verification"})
    data["draft_length"] = {"policy": "fixed", "tokens": tokens}
    path = _folder() / f"{name}_{tokens}.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


@functools.cache
def native(config: str, tokens: int = 4, policy: str = "fixed") -> str:
    """Path of a file with one of vLLM's own drafters.

    Args:
        config: vLLM's speculative config in JSON, without a number of tokens.
        tokens: maximum draft length.
        policy: of draft lengths.
    """
    proposer = {"method": "vllm", "config": json.loads(config)}
    path = _folder() / f"native_{hashlib.sha256(config.encode()).hexdigest()[:8]}_{policy}_{tokens}.yaml"
    path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": policy, "tokens": tokens}}))
    return str(path)


@functools.cache
def distant() -> str:
    """Path of a file with the bundled draft model at twice its temperature: far from what the target would write."""
    from safetensors.torch import load_file, save_file

    model = _folder() / "distant"
    shutil.copytree(model_path("draft"), model)
    weights = load_file(model / "model.safetensors")
    # The input of the last layer, and so all logits.
    weights["model.norm.weight"] = weights["model.norm.weight"] / 2
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    path = _folder() / "distant.yaml"
    proposer = {"method": "draft_model", "model": str(model)}
    path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": 4}}))
    return str(path)


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fixed-"))
