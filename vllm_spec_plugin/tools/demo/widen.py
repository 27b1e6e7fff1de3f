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
_INDEX = "model.safetensors.index.json"
# The neurons' dimension of each part of a gated MLP; None: it has none.
_REQUIRED = {"gate_proj.weight": 0, "up_proj.weight": 0, "down_proj.weight": 1}
_NEURONS: dict[str, int | None] = {**_REQUIRED, "gate_proj.bias": 0, "up_proj.bias": 0, "down_proj.bias": None}
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Copies of the weights in other formats would still be narrow, and some loaders prefer them.
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx"}
_NOT_COPIED = {".git", ".cache"}


@dataclass(frozen=True)
class Widened:
    """Numbers stored in the tensors (a tied output layer counts once), neurons per MLP, and bytes of all files."""

    parameters_before: int
    parameters_after: int
    intermediate_size_before: int
    intermediate_size_after: int
    bytes_on_disk: int


class _Checkpoint:
    """A model's config, and its tensors without their values.

    Attributes:
        config: all of config.json.
        files: safetensors files of the model.
        size: neurons per MLP.
        axes: dimension of the neurons, by the name of each tensor that has them.

    Raises:
        UserError: it cannot be widened.
    """

    def __init__(self, model: Path) -> None:
        if not (model / "config.json").is_file():
            what = "has no config.json" if model.is_dir() else "no such folder"
            raise UserError(f"{model}: {what}; allowed: a folder with config.json and safetensors")
        self.config = _read_json(model / "config.json")
        if self.config.get("quantization_config") is not None:
            raise UserError(f"{model}: config.json has a quantization_config; allowed: a model with float weights")
        size = self.config.get("intermediate_size")
        if type(size) is not int or size < 1:
            text = f"{model}: config.json gives {size!r} as intermediate_size"
            raise UserError(f"{text}; allowed: one whole number for all MLPs")
        self.size = size
        self.files = _weight_files(model)
        tensors: dict[str, torch.Tensor] = {}
        for path in self.files:
            try:
                with safe_open(path, "pt") as file:
                    tensors |= {name: file.get_tensor(name).to("meta") for name in file.keys()}  # noqa: SIM118
            except (OSError, SafetensorError) as error:
                raise UserError(f"{path}: cannot be read as safetensors: {error}") from None
        self.axes = _neuron_axes(model, tensors, self.size)
        tied = self.config.get("tie_word_embeddings") is True
        self._counts = {n: one.numel() for n, one in tensors.items() if not (tied and n == "lm_head.weight")}

    def parameters(self, size: int) -> int:
        """Number of parameters with `size` neurons per MLP."""
        counts = self._counts.items()
        return sum(count // self.size * size if name in self.axes else count for name, count in counts)


def intermediate_size_for(model: Path, parameters: int) -> int:
    """The smallest multiple of `MULTIPLE` that brings a model to at least `parameters`, counted as in `Widened`.

    Raises:
        UserError: the model cannot be widened, or is larger already.
    """
    checkpoint = _Checkpoint(model)
    has = checkpoint.parameters(checkpoint.size)
    if parameters < has:
        raise UserError(f"{model}: got {parameters:,} parameters to reach; allowed: from {has:,}, what it has")
    per_neuron = checkpoint.parameters(checkpoint.size + 1) - has
    size = checkpoint.size - (has - parameters) // per_neuron
    return -(-size // MULTIPLE) * MULTIPLE


def widen(model: Path, out: Path, intermediate_size: int, *, force: bool = False) -> Widened:
    """Writes a model with more neurons per MLP, the added ones zero: the same function at a larger cost.

    The result's logits are the model's up to floating point: a longer sum may be rounded in another
    order. Holds one file's tensors in memory.

    Args:
        model: folder with config.json and safetensors whose MLPs are `*.mlp.{gate,up,down}_proj`, as in
            Llama, Qwen2, Qwen3 and Mistral. Not changed.
        out: folder to write; it appears when it is complete. Everything but weights in other formats is copied.
        intermediate_size: neurons per MLP, at least what the model has.
        force: whether a model at `out` is replaced, once the new one is complete.

    Raises:
        UserError: the model cannot be widened, or `out` cannot be written; `out` is as it was.
    """
    checkpoint = _Checkpoint(model)
    if intermediate_size < checkpoint.size:
        text = f"{model}: got {intermediate_size} as the new intermediate_size"
        raise UserError(f"{text}; allowed: from {checkpoint.size}, what it has")
    _check_out(out, model, force)
    there = out.resolve()
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{there.name}-", dir=there.parent) as temporary:
            new, old = Path(temporary, "new"), Path(temporary, "old")
            shutil.copytree(model, new, ignore=lambda folder, names: [name for name in names if _is_left_out(name)])
            _write(checkpoint, model, new, intermediate_size)
            written = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
            if there.exists():
                there.rename(old)
            try:
                new.rename(there)
            except BaseException:
                if old.exists():
                    old.rename(there)
                raise
    except (OSError, SafetensorError) as error:
        raise UserError(f"{out}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    before, after = checkpoint.parameters(checkpoint.size), checkpoint.parameters(intermediate_size)
    return Widened(before, after, checkpoint.size, intermediate_size, written)


def _write(checkpoint: _Checkpoint, model: Path, folder: Path, size: int) -> None:
    """Writes config, weights and, of several files, their index."""
    (folder / "config.json").write_text(_json(checkpoint.config | {"intermediate_size": size}), "utf-8")
    num_bytes = 0
    for path in checkpoint.files:
        tensors = load_file(path)
        for name in tensors.keys() & checkpoint.axes.keys():
            ends = [0] * (2 * (tensors[name].dim() - checkpoint.axes[name]))
            ends[-1] = size - checkpoint.size
            tensors[name] = pad(tensors[name], ends)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        with safe_open(path, "pt") as source:
            save_file(tensors, folder / path.name, {"format": "pt"} | (source.metadata() or {}))
        # safetensors makes files that only their owner can read; a server may run as someone else.
        (folder / path.name).chmod((folder / "config.json").stat().st_mode)
    if len(checkpoint.files) > 1:
        index = _read_json(model / _INDEX)
        (folder / _INDEX).write_text(_json(index | {"metadata": {"total_size": num_bytes}}), "utf-8")


def _is_left_out(name: str) -> bool:
    return name in _NOT_COPIED or Path(name).suffix in _WEIGHTS or name.endswith(".index.json")


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: got something else than a JSON object")
    return data


def _weight_files(model: Path) -> list[Path]:
    if (single := model / "model.safetensors").is_file():
        return [single]
    if not (model / _INDEX).is_file():
        raise UserError(f"{model}: has neither {single.name} nor {_INDEX}; allowed: weights as safetensors")
    weight_map = _read_json(model / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{model / _INDEX}: has no weight_map")
    return [model / name for name in sorted({str(name) for name in weight_map.values()})]


def _neuron_axes(model: Path, tensors: dict[str, torch.Tensor], size: int) -> dict[str, int]:
    """Dimension to pad, by the name of each tensor to pad.

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
        axis = _NEURONS[part]
        if axis is None:
            continue
        if tensor.dtype not in _DTYPES:
            raise UserError(f"{model}: {name} has type {tensor.dtype}; allowed: {', '.join(map(str, _DTYPES))}")
        if tensor.dim() <= axis or tensor.shape[axis] != size:
            text = f"{model}: {name} has shape {list(tensor.shape)}"
            raise UserError(f"{text}; allowed: intermediate_size, {size}, as dimension {axis}")
        axes[name] = axis
    return axes


def _check_out(out: Path, model: Path, force: bool) -> None:
    there, source = out.resolve(), model.resolve()
    if there.is_relative_to(source) or source.is_relative_to(there):
        raise UserError(f"{out}: overlaps the model to widen, {model}; name another folder")
    if there.exists() and not there.is_dir():
        raise UserError(f"{out}: is a file; allowed: a folder, new or empty")
    if there.exists() and any(there.iterdir()):
        if not force:
            raise UserError(f"{out}: is not empty; name another folder, or replace the model there with --force")
        if not (there / "config.json").is_file():
            raise UserError(f"{out}: is not empty and holds no model, so --force does not replace it")
