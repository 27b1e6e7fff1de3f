"""Widens a checkpoint: the same function at a larger model's cost.

A gated MLP computes down(act(gate(x)) * up(x)). A neuron whose gate, up and down weights are all zero
adds 0 to that, whatever x is, but its weights are read and multiplied like any others.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import pad

from vllm_spec_plugin.schema.errors import UserError

MULTIPLE = 64
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The neurons' dimension of each part of a gated MLP; None: it has none.
_REQUIRED = {"gate_proj.weight": 0, "up_proj.weight": 0, "down_proj.weight": 1}
_NEURONS: dict[str, int | None] = {**_REQUIRED, "gate_proj.bias": 0, "up_proj.bias": 0, "down_proj.bias": None}
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Copies of the weights in other formats would still be narrow, and some loaders prefer them.
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
_LEFT_OUT = (*_WEIGHTS, "*.index.json", ".git", ".cache")


@dataclass(frozen=True)
class Widened:
    """Numbers stored in the tensors (a tied output layer counts once), neurons per MLP, and bytes of all files."""

    parameters_before: int
    parameters_after: int
    intermediate_size_before: int
    intermediate_size_after: int
    bytes_on_disk: int


def widen(model: Path, out: Path, *, intermediate_size: int | None = None, parameters: int | None = None) -> Widened:
    """Writes a model with more neurons per MLP, the added ones zero: the same function at a larger cost.

    The result's logits are the model's up to floating point: a longer sum may be rounded in another
    order. Holds one file's tensors in memory.

    Args:
        model: folder with config.json and safetensors whose MLPs are `*.mlp.{gate,up,down}_proj`, as in
            Llama, Qwen2, Qwen3 and Mistral. Not changed.
        out: folder to write, new or empty; it appears when it is complete, with the model's other files.
        intermediate_size: neurons per MLP, at least what the model has.
        parameters: instead, at least as many, with the smallest multiple of `MULTIPLE` neurons.

    Raises:
        UserError: the model cannot be widened, or `out` cannot be written; `out` is as it was.
    """
    config, files, tensors = _read(model)
    size = config["intermediate_size"]
    axes = _neuron_axes(model, tensors, size)
    is_tied = config.get("tie_word_embeddings") is True
    counts = {name: one.numel() for name, one in tensors.items() if not (is_tied and name == "lm_head.weight")}
    has, per_neuron = sum(counts.values()), sum(counts[name] // size for name in axes)
    if parameters is not None:
        if parameters < has:
            raise UserError(f"{model}: got {parameters:,} parameters to reach; allowed: from {has:,}, what it has")
        intermediate_size = MULTIPLE * -((has - parameters - size * per_neuron) // (per_neuron * MULTIPLE))
    if intermediate_size is None or intermediate_size < size:
        text = f"{model}: got {intermediate_size} as the new intermediate_size"
        raise UserError(f"{text}; allowed: from {size}, what it has")
    there, source = out.resolve(), model.resolve()
    if there.is_relative_to(source) or source.is_relative_to(there):
        raise UserError(f"{out}: overlaps the model to widen, {model}; name another folder")
    if there.exists() and (not there.is_dir() or any(there.iterdir())):
        raise UserError(f"{out}: is a file or not empty; allowed: a folder, new or empty")
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{there.name}-", dir=there.parent) as temporary:
            new = Path(temporary, "new")
            shutil.copytree(model, new, ignore=shutil.ignore_patterns(*_LEFT_OUT))
            _write(new, config | {"intermediate_size": intermediate_size}, files, axes, intermediate_size - size)
            written = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
            new.rename(there)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{out}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return Widened(has, has + (intermediate_size - size) * per_neuron, size, intermediate_size, written)


def _read(model: Path) -> tuple[dict[str, Any], list[Path], dict[str, torch.Tensor]]:
    """Returns a model's config.json, its safetensors files, and their tensors without values."""
    if not (model / "config.json").is_file():
        what = "has no config.json" if model.is_dir() else "no such folder"
        raise UserError(f"{model}: {what}; allowed: a folder with config.json and safetensors")
    config = _read_json(model / "config.json")
    if config.get("quantization_config") is not None:
        raise UserError(f"{model}: config.json has a quantization_config; allowed: a model with float weights")
    size = config.get("intermediate_size")
    if type(size) is not int or size < 1:
        text = f"{model}: config.json gives {size!r} as intermediate_size"
        raise UserError(f"{text}; allowed: one whole number for all MLPs")
    files = [model / _SINGLE]
    if not files[0].is_file():
        if not (model / _INDEX).is_file():
            raise UserError(f"{model}: has neither {_SINGLE} nor {_INDEX}; allowed: weights as safetensors")
        names = _read_json(model / _INDEX).get("weight_map", {}).values()
        files = [model / name for name in sorted(set(names))]
    tensors: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as file:
                tensors |= {name: file.get_tensor(name).to("meta") for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cannot be read as safetensors: {error}") from None
    return config, files, tensors


def _neuron_axes(model: Path, tensors: dict[str, torch.Tensor], size: int) -> dict[str, int]:
    """Returns the dimension to pad, by the name of each tensor to pad.

    Raises:
        UserError: there is no gated MLP, or one that zeros may change or that has another size.
    """
    # Without a gate it is no gated MLP: attention, a mixture's experts.
    layers = {name.removesuffix("gate_proj.weight") for name in tensors if name.endswith(".mlp.gate_proj.weight")}
    if not layers:
        raise UserError(f"{model}: no gated MLP found; allowed: a model with tensors named *.mlp.gate_proj.weight")
    if missing := sorted({layer + part for layer in layers for part in _REQUIRED} - tensors.keys()):
        raise UserError(f"{model}: {missing[0]} is missing")
    axes = {}
    for name, tensor in tensors.items():
        layer, separator, part = name.rpartition(".mlp.")
        if layer + separator not in layers:
            continue
        if part not in _NEURONS:
            text = f"{model}: {name} is no part of a plain gated MLP ({', '.join(_REQUIRED)}, and biases)"
            raise UserError(f"{text}, so added zeros may change what it computes")
        if (axis := _NEURONS[part]) is None:
            continue
        if tensor.dtype not in _DTYPES:
            raise UserError(f"{model}: {name} has type {tensor.dtype}; allowed: {', '.join(map(str, _DTYPES))}")
        if tensor.dim() <= axis or tensor.shape[axis] != size:
            text = f"{model}: {name} has shape {list(tensor.shape)}"
            raise UserError(f"{text}; allowed: intermediate_size, {size}, as dimension {axis}")
        axes[name] = axis
    return axes


def _write(folder: Path, config: dict[str, Any], files: list[Path], axes: dict[str, int], num_added: int) -> None:
    """Writes config, weights and, of several files, their index."""
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
    num_bytes = 0
    for path in files:
        tensors = load_file(path)
        for name in tensors.keys() & axes.keys():
            ends = [0] * (2 * (tensors[name].dim() - axes[name]))
            ends[-1] = num_added
            tensors[name] = pad(tensors[name], ends)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        with safe_open(path, "pt") as source:
            save_file(tensors, folder / path.name, {"format": "pt"} | (source.metadata() or {}))
        # safetensors makes files that only their owner can read; a server may run as someone else.
        (folder / path.name).chmod((folder / "config.json").stat().st_mode)
    if len(files) > 1:
        index = _read_json(files[0].parent / _INDEX) | {"metadata": {"total_size": num_bytes}}
        (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: got something else than a JSON object")
    return data
