"""Reads and writes Medusa heads, in this project's layout and that of FasterDecoding/Medusa.

Both are a folder with `config.json` and a file of tensors `{head}.{layer}.linear.weight`, `{head}.{layer}.linear.bias`
and `{head}.{num_layers}.weight`, the projection. The original's is a torch file; ours is safetensors, and our config
also has sizes, measured accuracies and provenance.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.medusa.tensor_file import (
    ALLOWED,
    FILES,
    OUR_FILE,
    MedusaCheckpointError,
    TensorFile,
    open_tensors,
    show_file,
)
from vllm_spec_plugin.proposers.model_source import UnreadableError, local_folder
from vllm_spec_plugin.schema.errors import show, show_text

__all__ = ["MedusaCheckpointError", "MedusaConfig", "load_heads", "read_heads_config", "save_heads"]

# Uses of the heads' tokens: the most likely ones for requests at temperature 0, or above, or sampled ones.
GREEDY, SAMPLED, DRAWN = "greedy", "sampled", "drawn"
NUM_RANKS = 10
"""Number of ranks with accuracies and paths; tokens with lower ranks count as missed."""


@dataclass(frozen=True)
class MedusaConfig:
    """Description of a folder of heads, with sizes by the tensors.

    Attributes:
        num_heads: number of heads.
        num_layers: residual blocks per head.
        hidden_size: size of the target's hidden states.
        vocab_size: size of each head's vocabulary.
        base_model: name of the model that they were trained for, as in config.json; None is not known.
        accuracy: [num_heads][NUM_RANKS], probability on held-out positions that the next token has each rank with each
            head; None is not measured.
        paths: by use (`GREEDY`, `SAMPLED`, `DRAWN`), (rank_1, ..., rank_d) and the probability on held-out positions
            that the tokens of these ranks, from 0, of heads 1 to d are all accepted; most probable first, every prefix
            of a path before it; None is not measured.
        measured_on: description of the text that `accuracy` and `paths` were measured on; None is not known.
        provenance: origin of the heads; None is not known.
    """

    num_heads: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    base_model: str | None = None
    accuracy: tuple[tuple[float, ...], ...] | None = None
    paths: Mapping[str, Mapping[tuple[int, ...], float]] | None = None
    measured_on: str | None = None
    provenance: Mapping[str, Any] | None = None


def read_heads_config(model: str) -> MedusaConfig:
    """Reads config.json and the shapes of the tensors; downloads the files of a name on the hub.

    Args:
        model: a folder or a name on the Hugging Face hub.

    Raises:
        MedusaCheckpointError: the heads cannot be read, or config.json and tensors differ.
    """
    folder = _folder(model)
    return _read_config(folder, open_tensors(folder))


def load_heads(
    model: str,
    hidden_size: int,
    vocab_size: int,
    dtype: torch.dtype,
    device: torch.device | str,
    num_heads: int | None = None,
) -> MedusaHeads:
    """Loads heads for drafting, without gradients, with weights in the target's dtype.

    Args:
        model: a folder or a name on the Hugging Face hub.
        hidden_size: hidden size of the target.
        vocab_size: vocabulary size of the target.
        dtype: data type of the target's hidden states.
        device: device of the target's hidden states.
        num_heads: number of heads to load, from the first on; None is all.

    Raises:
        MedusaCheckpointError: the folder cannot be read, or the heads do not fit.
    """
    folder = _folder(model)
    file = open_tensors(folder)
    config = _read_config(folder, file)
    check_sizes(config, model, hidden_size, vocab_size, num_heads)
    heads = MedusaHeads(
        hidden_size, vocab_size, num_heads or config.num_heads, config.num_layers, dtype=dtype, device=device
    )
    tensors = file.read()

    def tensor(head: int, rest: str) -> torch.Tensor:
        return tensors[file.names[head, rest]]

    with torch.no_grad():
        for head in range(heads.num_heads):
            for layer in range(config.num_layers):
                heads.block_weights[layer][head].copy_(tensor(head, f"{layer}.linear.weight").T)
                heads.block_biases[layer][head].copy_(tensor(head, f"{layer}.linear.bias"))
            heads.projection[head].copy_(tensor(head, f"{config.num_layers}.weight").T)
    return heads.requires_grad_(False).eval()


def check_sizes(
    config: MedusaConfig,
    model: str,
    hidden_size: int | None,
    vocab_size: int | None,
    num_heads: int | None,
    target: str = "the target",
) -> None:
    """Checks that heads fit a target.

    Args:
        config: description of the heads.
        model: their folder or hub name, for messages.
        hidden_size: hidden size of the target; None is not compared.
        vocab_size: vocabulary size of the target; None is not compared.
        num_heads: number of heads needed; None accepts any.
        target: name of the target, for messages.

    Raises:
        MedusaCheckpointError: a size differs; names both.
    """
    shown = f"'{show_text(model, 200)}'"
    for what, found, wanted in (
        ("a hidden size of", config.hidden_size, hidden_size),
        ("a vocabulary of", config.vocab_size, vocab_size),
    ):
        if wanted is not None and found != wanted:
            raise MedusaCheckpointError(
                f"the heads in {shown} have {what} {found:,}, {target} one of {wanted:,}; allowed: heads with "
                f"{wanted:,}; choose heads trained for this target or train them with vllm-spec train-medusa"
            )
    if num_heads is not None and num_heads > config.num_heads:
        raise MedusaCheckpointError(
            f"{shown} has {config.num_heads} heads, drafts of {num_heads} tokens need {num_heads}; allowed: up to "
            f"{config.num_heads} tokens per path; draft fewer or train {num_heads} heads with vllm-spec train-medusa"
        )


def check_measured(config: MedusaConfig) -> None:
    """Checks that the heads have measured accuracies.

    Raises:
        MedusaCheckpointError: they have none.
    """
    if config.accuracy is None:
        raise MedusaCheckpointError(
            "the heads' config.json has no measured accuracies, which proposer.tree auto needs; allowed: a list of "
            "paths for proposer.tree; or measure them: vllm-spec train-medusa --from HEADS --steps 0 writes a copy "
            "with accuracies"
        )


def save_heads(heads: MedusaHeads, folder: Path, config: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Writes heads in this project's layout.

    Args:
        heads: the heads.
        folder: folder for config.json and the weights; created if it does not exist.
        config: keys of config.json besides the sizes: base_model_name_or_path, accuracy, paths, provenance...
        dtype: data type of the saved weights.
    """
    from safetensors.torch import save

    tensors = {}
    for head in range(heads.num_heads):
        for layer in range(heads.num_layers):
            tensors[f"{head}.{layer}.linear.weight"] = heads.block_weights[layer][head].T
            tensors[f"{head}.{layer}.linear.bias"] = heads.block_biases[layer][head, 0]
        tensors[f"{head}.{heads.num_layers}.weight"] = heads.projection[head].T
    folder.mkdir(parents=True, exist_ok=True)
    saved = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
    # safetensors itself creates a file that only its owner can read.
    (folder / OUR_FILE).write_bytes(save(saved, metadata={"format": "pt"}))
    sizes = {
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.num_layers,
        "hidden_size": heads.hidden_size,
        "vocab_size": heads.vocab_size,
    }
    (folder / "config.json").write_text(_to_json({**sizes, **config}) + "\n", encoding="utf-8")


def _to_json(config: Mapping[str, Any]) -> str:
    """Returns indented JSON, with one path per line."""
    paths = config.get("paths") or {}
    text = json.dumps({**config, "paths": {use: f"PATHS {use}" for use in paths}}, indent=2, ensure_ascii=False)
    for use, found in paths.items():
        lines = ",\n      ".join(json.dumps(path) for path in found)
        text = text.replace(f'"PATHS {use}"', f"[\n      {lines}\n    ]", 1)
    return text


def _folder(model: str) -> Path:
    try:
        return local_folder(model, ["config.json", *FILES], ALLOWED)
    except UnreadableError as error:
        raise MedusaCheckpointError(str(error)) from None


def _read_config(folder: Path, file: TensorFile) -> MedusaConfig:
    path = folder / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MedusaCheckpointError(f"{show_file(folder)}: has no config.json; allowed: {ALLOWED}") from None
    except OSError as error:
        raise MedusaCheckpointError(f"{show_file(path)}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise MedusaCheckpointError(f"{show_file(path)}: not JSON: {error}; download or write it again") from None
    if not isinstance(data, dict):
        raise MedusaCheckpointError(f"{show_file(path)}: got {show(data)}; allowed: an object with medusa_num_heads")
    counted = {
        # Some published configs name fewer heads than the file has.
        "medusa_num_heads": range(file.num_heads + 1),
        "medusa_num_layers": [file.num_layers],
        "hidden_size": [file.hidden_size],
        "vocab_size": [file.vocab_size],
    }
    for key, allowed in counted.items():
        named, found = data.get(key), allowed[-1]
        if named is not None and named not in allowed:
            raise MedusaCheckpointError(
                f"{show_file(path)}: {key}: got {show(named)}; allowed: {found}, as in the tensors of "
                f"{file.path.name}; train or download the heads again"
            )
    base_model, measured_on = data.get("base_model_name_or_path"), data.get("measured_on")
    return MedusaConfig(
        num_heads=file.num_heads,
        num_layers=file.num_layers,
        hidden_size=file.hidden_size,
        vocab_size=file.vocab_size,
        base_model=base_model if isinstance(base_model, str) else None,
        accuracy=_accuracy(data.get("accuracy"), path, file.num_heads),
        paths=_paths(data.get("paths"), path, file.num_heads),
        measured_on=measured_on if isinstance(measured_on, str) else None,
        provenance=data.get("provenance"),
    )


def _accuracy(value: Any, path: Path, num_heads: int) -> tuple[tuple[float, ...], ...] | None:
    if value is None:
        return None
    try:
        rows = tuple(tuple(float(number) for number in row) for row in value)
    except (TypeError, ValueError):
        rows = ()
    if len(rows) != num_heads or not all(len(row) == NUM_RANKS and _are_shares(row) for row in rows):
        raise MedusaCheckpointError(
            f"{show_file(path)}: accuracy: allowed: {num_heads} lists, one per head, of {NUM_RANKS} probabilities; "
            "measure the heads again with vllm-spec train-medusa --from ... --steps 0"
        )
    return rows


def _are_shares(numbers: tuple[float, ...]) -> bool:
    return all(0 <= number <= 1 for number in numbers) and sum(numbers) <= 1 + 1e-6


def _paths(value: Any, path: Path, num_heads: int) -> dict[str, dict[tuple[int, ...], float]] | None:
    if value is None:
        return None
    try:
        paths = {
            str(use): {tuple(int(rank) for rank in ranks): float(probability) for ranks, probability in found}
            for use, found in value.items()
        }
    except (AttributeError, TypeError, ValueError):
        paths = {"": {}}
    if not set(paths) <= {GREEDY, SAMPLED, DRAWN} or not all(_is_tree(found, num_heads) for found in paths.values()):
        raise MedusaCheckpointError(
            f"{show_file(path)}: paths: allowed: {GREEDY}, {SAMPLED} and {DRAWN}, each pairs of up to {num_heads} "
            f"ranks below {NUM_RANKS} and a probability, each path's prefixes included; measure the heads again with "
            "vllm-spec train-medusa --from ... --steps 0"
        )
    return paths


def _is_tree(paths: Mapping[tuple[int, ...], float], num_heads: int) -> bool:
    return all(
        0 < len(ranks) <= num_heads
        and (len(ranks) == 1 or ranks[:-1] in paths)
        and all(0 <= rank < NUM_RANKS for rank in ranks)
        and 0 <= probability <= 1
        for ranks, probability in paths.items()
    )
