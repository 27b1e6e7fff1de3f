"""Model folders without weights, made from the bundled draft."""

import json
import shutil
from pathlib import Path
from typing import Any

from vllm_spec_plugin.models import model_path

VOCAB_SIZE = 2048
_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def copy_model(folder: Path, without: tuple[str, ...] = (), **config: Any) -> str:
    """A copy of the bundled draft in `folder`, a new one.

    Args:
        without: files to leave out.
        config: what to change in its config.json; None takes a key out.
    """
    folder.mkdir()
    for name in _FILES:
        if name not in without:
            shutil.copy(model_path("draft") / name, folder)
    if "config.json" not in without:
        edit(folder / "config.json", **config)
    return str(folder)


def edit(path: Path, **changes: Any) -> None:
    """Sets top-level keys of a JSON file; None takes one out."""
    data = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def swap_tokens(folder: str, *pairs: tuple[str, str]) -> None:
    """Gives each pair of tokens of a folder's tokenizer each other's ids."""
    path = Path(folder) / "tokenizer.json"
    data = json.loads(path.read_text())
    ids = data["model"]["vocab"]
    for one, other in pairs:
        ids[one], ids[other] = ids[other], ids[one]
    path.write_text(json.dumps(data))


def name_end_token(folder: str, token: str) -> None:
    """Makes `token` the one that ends a text, for the tokenizer alone."""
    edit(Path(folder) / "tokenizer_config.json", eos_token=token)
