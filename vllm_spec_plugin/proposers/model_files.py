"""Reads config.json and safetensors of a model's folder; each error is one message that names the file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.schema.errors import show, show_file, show_reason

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


class UnreadableError(ValueError):
    """Files of a model cannot be read, or do not go together; str() is the whole message, one line."""


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """Reads a file with a JSON object.

    Args:
        advice: what to do, the end of messages.

    Raises:
        UnreadableError: there is no such file, or it has no such object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadableError(f"{show_file(path.parent)}: has no {path.name}; {advice}") from None
    except OSError as error:
        raise UnreadableError(f"{show_file(path)}: cannot be read: {error.strerror}; {advice}") from None
    except ValueError as error:
        raise UnreadableError(f"{show_file(path)}: not JSON: {error}; {advice}") from None
    if not isinstance(data, dict):
        raise UnreadableError(f"{show_file(path)}: got {show(data)}; allowed: an object; {advice}")
    return data


def tensor_shapes(path: Path, advice: str) -> dict[str, tuple[int, ...]]:
    """Reads names and shapes from the header of a safetensors file.

    Raises:
        UnreadableError: it is no such file, or is not whole.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UnreadableError(f"{show_file(path)}: cannot be read: {show_reason(error)}; {advice}") from None


def read_tensors(path: Path, names: Iterable[str]) -> "dict[str, torch.Tensor]":
    """Reads tensors of a safetensors file, on the CPU."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in names}


def indexed_files(folder: Path, advice: str) -> dict[Path, set[str]]:
    """Returns the files that a folder's index names, and the tensors that each is said to have; empty without an index.

    Raises:
        UnreadableError: the index is wrong, or a file is not there.
    """
    index = folder / INDEX
    if not index.is_file():
        return {}
    named = read_json(index, advice).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise UnreadableError(f"{show_file(index)}: has no weight_map; {advice}")
    found: dict[Path, set[str]] = {}
    for name, file in named.items():
        if not isinstance(file, str) or not (folder / file).is_file():
            raise UnreadableError(f"{show_file(index)}: names {show(file)}, which is not there; {advice}")
        found.setdefault(folder / file, set()).add(name)
    return dict(sorted(found.items()))
