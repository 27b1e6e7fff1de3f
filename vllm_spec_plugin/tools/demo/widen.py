"""Widens a checkpoint: the same function at a larger model's cost.

A gated MLP computes down(act(gate(x)) * up(x)). A neuron whose gate, up and down weights are all zero
adds 0 to that, whatever x is, but its weights are read and multiplied like any others.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn.functional import pad

from vllm_spec_plugin.schema.errors import UserError

MULTIPLE = 64
SHARD_BYTES = 5_000_000_000

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The neurons' dimension of each part of a gated MLP; None: it has none.
_AXES = {f"{part}_proj.{kind}": 0 for part in ("gate", "up") for kind in ("weight", "bias")}
_NEURONS: dict[str, int | None] = {**_AXES, "down_proj.weight": 1, "down_proj.bias": None}
_REQUIRED = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Copies of the weights in other formats would still be narrow, and some loaders prefer them.
_OTHER_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx"}
_NOT_THE_MODEL = {".git", ".cache"}


@dataclass(frozen=True)
class Widened:
    """What a widening came to.

    Attributes:
        parameters_before: numbers stored in the model's tensors; a tied output layer counts once.
        parameters_after: the same of the result.
        intermediate_size_before: neurons per MLP.
        intermediate_size_after: the same of the result.
        bytes_on_disk: of all files of the result.
        seconds: wall-clock time of reading, widening and writing.
    """

    parameters_before: int
    parameters_after: int
    intermediate_size_before: int
    intermediate_size_after: int
    bytes_on_disk: int
    seconds: float


class _Checkpoint:
    """A model's config and the shapes of its tensors, not their values.

    Attributes:
        config: all of config.json.
        files: file of each tensor.
        metadata: of all files.
        tensors: on the meta device, by name.
        axes: dimension of the neurons, by the name of each tensor that has them.
        size: neurons per MLP.

    Raises:
        UserError: it cannot be widened.
    """

    def __init__(self, model: Path) -> None:
        needed = "allowed: a folder with config.json and safetensors"
        if not model.is_dir():
            raise UserError(f"{model}: no such folder; {needed}")
        if not (model / "config.json").is_file():
            raise UserError(f"{model}: has no config.json; {needed}")
        self.config = _read_json(model / "config.json")
        if self.config.get("quantization_config") is not None:
            raise UserError(f"{model}: config.json has a quantization_config; allowed: a model with float weights")
        size = self.config.get("intermediate_size")
        if type(size) is not int or size < 1:
            text = f"{model}: config.json gives {size!r} as intermediate_size"
            raise UserError(f"{text}; allowed: one whole number for all MLPs")
        self.size = size
        self.files: dict[str, Path] = {}
        self.metadata = {"format": "pt"}
        self.tensors: dict[str, torch.Tensor] = {}
        for path in _weight_files(model):
            try:
                with safe_open(path, "pt") as file:
                    self.metadata |= file.metadata() or {}
                    for name in file.keys():  # noqa: SIM118 - not a mapping
                        self.files[name], self.tensors[name] = path, file.get_tensor(name).to("meta")
            except (OSError, SafetensorError) as error:
                raise UserError(f"{path}: cannot be read as safetensors: {error}") from None
        self.axes = _padded_axes(model, self.tensors, self.size)

    def widened(self, size: int) -> dict[str, torch.Tensor]:
        """All tensors as they will be, on the meta device."""
        return {name: self.pad(name, tensor, size) for name, tensor in self.tensors.items()}

    def pad(self, name: str, tensor: torch.Tensor, size: int) -> torch.Tensor:
        """The tensor with zeros for the neurons up to `size`, if it has neurons."""
        if name not in self.axes:
            return tensor
        ends = [0] * (2 * (tensor.dim() - self.axes[name]))
        ends[-1] = size - self.size
        return pad(tensor, ends)

    def parameters(self, size: int) -> int:
        """Numbers in the tensors; an output layer that is tied and stored counts once."""
        tied = self.config.get("tie_word_embeddings") is True
        tensors = self.widened(size).items()
        return sum(tensor.numel() for name, tensor in tensors if not (tied and name == "lm_head.weight"))


def intermediate_size_for(model: Path, parameters: int) -> int:
    """The smallest multiple of `MULTIPLE` that brings a model to at least `parameters`.

    Args:
        model: a checkpoint's folder.
        parameters: counted as in `Widened`; at least what the model has.

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


def widen(
    model: Path,
    out: Path,
    intermediate_size: int,
    *,
    force: bool = False,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Widened:
    """Writes a model with more neurons per MLP, the added ones zero: the same function at a larger cost.

    The result's logits are the model's up to floating point: a longer sum may be rounded in another
    order. Holds one output file's tensors in memory, at most `SHARD_BYTES` and one tensor.

    Args:
        model: folder with config.json and safetensors whose MLPs are `*.mlp.{gate,up,down}_proj`, as in
            Llama, Qwen2, Qwen3 and Mistral. Not changed.
        out: folder to write; it appears when it is complete. Everything of the model's but weights in
            other formats is copied.
        intermediate_size: neurons per MLP, at least what the model has.
        force: whether a model at `out` is replaced, once the new one is complete.
        on_layer: called with the number of MLPs read and widened so far and of all.

    Raises:
        UserError: the model cannot be widened, or `out` cannot be written; `out` is as it was.
        OSError: a folder cannot be looked into.
    """
    begin = time.perf_counter()
    checkpoint = _Checkpoint(model)
    if intermediate_size < checkpoint.size:
        text = f"{model}: got {intermediate_size} as the new intermediate_size"
        raise UserError(f"{text}; allowed: from {checkpoint.size}, what it has")
    others = _other_files(model)
    _check_out(out, model, force)
    sizes = [tensor.nbytes for tensor in checkpoint.widened(intermediate_size).values()]
    _check_space(out, sum(sizes) + sum((model / name).stat().st_size for name in others))
    there = out.resolve()
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{there.name}-", dir=there.parent) as temporary:
            new, old = Path(temporary, "new"), Path(temporary, "old")
            for name in others:
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model / name, new / name)
            new.mkdir(exist_ok=True)
            _write_json(new / "config.json", {**checkpoint.config, "intermediate_size": intermediate_size})
            _write_weights(checkpoint, new, intermediate_size, on_layer)
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
    return Widened(before, after, checkpoint.size, intermediate_size, written, time.perf_counter() - begin)


def _write_weights(checkpoint: _Checkpoint, folder: Path, size: int, on_layer: Callable[[int, int], None]) -> None:
    """Writes all tensors, in one file if they fit, otherwise in numbered ones with an index."""
    plan = split_torch_state_dict_into_shards(checkpoint.widened(size), max_shard_size=SHARD_BYTES)
    layers = [name for name in checkpoint.axes if name.endswith("gate_proj.weight")]
    done = 0
    for file, names in plan.filename_to_tensors.items():
        shard = {}
        for name in names:
            with safe_open(checkpoint.files[name], "pt") as source:
                shard[name] = checkpoint.pad(name, source.get_tensor(name), size)
            if name in layers:
                done += 1
                on_layer(done, len(layers))
        save_file(shard, folder / file, checkpoint.metadata)
        # safetensors makes files that only their owner can read; a server may run as someone else.
        (folder / file).chmod((folder / "config.json").stat().st_mode)
        del shard
    if plan.is_sharded:
        _write_json(folder / _INDEX, {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename})


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: got something else than a JSON object")
    return data


def _weight_files(model: Path) -> list[Path]:
    if (model / _WEIGHTS).is_file():
        return [model / _WEIGHTS]
    if not (model / _INDEX).is_file():
        raise UserError(f"{model}: has neither {_WEIGHTS} nor {_INDEX}; allowed: weights as safetensors")
    weight_map = _read_json(model / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{model / _INDEX}: has no weight_map")
    return [model / name for name in sorted({str(name) for name in weight_map.values()})]


def _padded_axes(model: Path, tensors: dict[str, torch.Tensor], size: int) -> dict[str, int]:
    """Which tensors to pad, and along which dimension.

    Raises:
        UserError: there is no gated MLP, or one that zeros may change or that has another size.
    """
    gate = ".mlp.gate_proj.weight"
    # Without a gate it is no gated MLP: attention, a mixture's experts.
    layers = [name.removesuffix("gate_proj.weight") for name in tensors if name.endswith(gate)]
    if not layers:
        raise UserError(f"{model}: no gated MLP found; allowed: a model with tensors named *{gate}")
    axes = {}
    for name in [f"{layer}{part}" for layer in layers for part in _REQUIRED] + list(tensors):
        layer, separator, part = name.rpartition(".mlp.")
        if f"{layer}{separator}" not in layers:
            continue
        if part not in _NEURONS:
            text = f"{model}: {name} is no part of a plain gated MLP ({', '.join(_REQUIRED)}, and biases)"
            raise UserError(f"{text}, so added zeros may change what it computes")
        if name not in tensors:
            raise UserError(f"{model}: {name} is missing")
        axis, tensor = _NEURONS[part], tensors[name]
        if axis is None:
            continue
        if tensor.dtype not in _DTYPES:
            raise UserError(f"{model}: {name} has type {tensor.dtype}; allowed: {', '.join(map(str, _DTYPES))}")
        if tensor.dim() <= axis or tensor.shape[axis] != size:
            text = f"{model}: {name} has shape {list(tensor.shape)}"
            raise UserError(f"{text}; allowed: intermediate_size, {size}, as dimension {axis}")
        axes[name] = axis
    return axes


def _other_files(model: Path) -> list[Path]:
    """What to copy, relative to the model's folder: everything but config and weights."""
    names = (path.relative_to(model) for path in sorted(model.rglob("*")) if path.is_file())
    return [
        name
        for name in names
        if name != Path("config.json")
        and name.suffix not in _OTHER_WEIGHTS
        and not name.name.endswith(".index.json")
        and not _NOT_THE_MODEL & set(name.parts)
    ]


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


def _check_space(out: Path, needed: int) -> None:
    there = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(f"{out}: needs {needed / 1e9:.2f} GB of disk space; {free / 1e9:.2f} GB are free")
