"""Widens a checkpoint: the same function at a larger model's cost.

A gated MLP computes down(act(gate(x)) * up(x)). A neuron whose gate, up and down weights are all zero
adds 0 to that, whatever x is, but its weights are read and multiplied like any others.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vllm_spec_plugin.schema.errors import UserError

MULTIPLE = 64
SHARD_BYTES = 5_000_000_000

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The neurons' dimension of each part of a gated MLP; None: it has none.
_NEURONS = {
    "gate_proj.weight": 0,
    "gate_proj.bias": 0,
    "up_proj.weight": 0,
    "up_proj.bias": 0,
    "down_proj.weight": 1,
    "down_proj.bias": None,
}
_REQUIRED = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
# Copies of the weights in other formats would still be narrow, and some loaders prefer them.
_OTHER_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx"}
_NOT_THE_MODEL = {".git", ".cache"}


class WidenError(UserError, ValueError):
    """A model that cannot be widened as asked; str() is the whole message, one line."""


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


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    dtype: str  # safetensors' name of it


@dataclass(frozen=True)
class _Checkpoint:
    """A model's config, and where its tensors are and what shape they have; not their values.

    Attributes:
        config: all of config.json.
        files: what holds the tensors, and each file's metadata.
        tensors: by name.
        axes: the dimension to pad, by the name of each tensor that is to be padded.
        intermediate_size: neurons per MLP.
    """

    config: dict[str, Any]
    files: dict[Path, dict[str, str]]
    tensors: dict[str, _Tensor]
    axes: dict[str, int]
    intermediate_size: int

    @property
    def parameters(self) -> int:
        tied = self.config.get("tie_word_embeddings") is True
        return sum(
            prod(tensor.shape) for name, tensor in self.tensors.items() if not (tied and name == "lm_head.weight")
        )

    @property
    def parameters_per_neuron(self) -> int:
        """Parameters that one more neuron in every MLP adds."""
        return sum(prod(self.tensors[name].shape) for name in self.axes) // self.intermediate_size

    def added_bytes(self, intermediate_size: int) -> int:
        """Bytes by which the tensors grow."""
        held = sum(prod(self.tensors[name].shape) * _ITEM_BYTES[self.tensors[name].dtype] for name in self.axes)
        return held // self.intermediate_size * (intermediate_size - self.intermediate_size)


def intermediate_size_for(model: Path, parameters: int) -> int:
    """The smallest multiple of `MULTIPLE` that brings a model to at least `parameters`.

    Args:
        model: a checkpoint's folder.
        parameters: counted as in `Widened`; at least what the model has.

    Raises:
        WidenError: the model cannot be widened, or is larger already.
    """
    checkpoint = _read(model)
    missing = parameters - checkpoint.parameters
    if missing < 0:
        raise WidenError(
            f"{model}: got {parameters:,} parameters to reach; allowed: from {checkpoint.parameters:,}, what it has"
        )
    size = checkpoint.intermediate_size + _divide_up(missing, checkpoint.parameters_per_neuron)
    return _divide_up(size, MULTIPLE) * MULTIPLE


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
        WidenError: the model cannot be widened, or `out` cannot be written; `out` is as it was.
        OSError: a folder cannot be looked into.
    """
    begin = time.perf_counter()
    checkpoint = _read(model)
    if intermediate_size < checkpoint.intermediate_size:
        raise WidenError(
            f"{model}: got {intermediate_size} as the new intermediate_size; "
            f"allowed: from {checkpoint.intermediate_size}, what it has"
        )
    _check_out(out, model, force)
    others = _other_files(model)
    held = sum(path.stat().st_size for path in [*checkpoint.files, *(model / name for name in others)])
    _check_space(out, held + checkpoint.added_bytes(intermediate_size))
    try:
        with _taking_the_place_of(out) as folder:
            for name in others:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model / name, folder / name)
            config = {**checkpoint.config, "intermediate_size": intermediate_size}
            (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
            _write_weights(checkpoint, folder, intermediate_size, on_layer)
            written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except (OSError, SafetensorError) as error:
        raise WidenError(f"{out}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    added = checkpoint.parameters_per_neuron * (intermediate_size - checkpoint.intermediate_size)
    return Widened(
        parameters_before=checkpoint.parameters,
        parameters_after=checkpoint.parameters + added,
        intermediate_size_before=checkpoint.intermediate_size,
        intermediate_size_after=intermediate_size,
        bytes_on_disk=written,
        seconds=time.perf_counter() - begin,
    )


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _read(model: Path) -> _Checkpoint:
    if not model.is_dir():
        raise WidenError(f"{model}: no such folder; allowed: a folder with config.json and safetensors")
    config = _read_json(model / "config.json")
    if config.get("quantization_config") is not None:
        raise WidenError(f"{model}: config.json has a quantization_config; allowed: a model with float weights")
    size = config.get("intermediate_size")
    if type(size) is not int or size < 1:
        raise WidenError(
            f"{model}: config.json gives {size!r} as intermediate_size; allowed: one whole number for all MLPs"
        )
    files: dict[Path, dict[str, str]] = {}
    tensors: dict[str, _Tensor] = {}
    for path in _weight_files(model):
        try:
            with safe_open(path, "pt") as file:
                files[path] = file.metadata() or {}
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    part = file.get_slice(name)
                    tensors[name] = _Tensor(tuple(part.get_shape()), part.get_dtype())
        except (OSError, SafetensorError) as error:
            raise WidenError(f"{path}: cannot be read as safetensors: {error}") from None
    return _Checkpoint(config, files, tensors, _padded_axes(model, tensors, size), size)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise WidenError(
            f"{path.parent}: has no {path.name}; allowed: a folder with config.json and safetensors"
        ) from None
    except (OSError, ValueError) as error:
        raise WidenError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise WidenError(f"{path}: got something else than a JSON object")
    return data


def _weight_files(model: Path) -> list[Path]:
    if (model / _WEIGHTS).is_file():
        return [model / _WEIGHTS]
    if not (model / _INDEX).is_file():
        raise WidenError(f"{model}: has neither {_WEIGHTS} nor {_INDEX}; allowed: weights as safetensors")
    weight_map = _read_json(model / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WidenError(f"{model / _INDEX}: has no weight_map")
    return [model / name for name in sorted({str(name) for name in weight_map.values()})]


def _padded_axes(model: Path, tensors: dict[str, _Tensor], size: int) -> dict[str, int]:
    """Which tensors to pad, and along which dimension.

    Raises:
        WidenError: there is no gated MLP, or one that zeros may change or that has another size.
    """
    layers: dict[str, list[str]] = {}
    for name in tensors:
        layer, _, part = name.rpartition(".mlp.")
        layers.setdefault(layer, []).append(part)
    axes: dict[str, int] = {}
    for layer, parts in layers.items():
        # Without it, this is no gated MLP: attention, a mixture's experts.
        if "gate_proj.weight" not in parts:
            continue
        for part in [*parts, *_REQUIRED]:
            name = f"{layer}.mlp.{part}"
            if part not in _NEURONS:
                raise WidenError(
                    f"{model}: {name} is no part of a plain gated MLP ({', '.join(_REQUIRED)}, and biases), "
                    "so added zeros may change what it computes"
                )
            if part not in parts:
                raise WidenError(f"{model}: {name} is missing")
            axis, tensor = _NEURONS[part], tensors[name]
            if axis is None:
                continue
            if tensor.dtype not in _ITEM_BYTES:
                raise WidenError(f"{model}: {name} has type {tensor.dtype}; allowed: {', '.join(_ITEM_BYTES)}")
            if len(tensor.shape) <= axis or tensor.shape[axis] != size:
                raise WidenError(
                    f"{model}: {name} has shape {list(tensor.shape)}; "
                    f"allowed: intermediate_size, {size}, as dimension {axis}"
                )
            axes[name] = axis
    if not axes:
        raise WidenError(f"{model}: no gated MLP found; allowed: a model with tensors named *.mlp.gate_proj.weight")
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
    if there == source or there in source.parents or source in there.parents:
        raise WidenError(f"{out}: overlaps the model to widen, {model}; name another folder")
    if not there.exists():
        return
    if not there.is_dir():
        raise WidenError(f"{out}: is a file; allowed: a folder, new or empty")
    if any(there.iterdir()):
        if not force:
            raise WidenError(f"{out}: is not empty; name another folder, or replace the model there with --force")
        if not (there / "config.json").is_file():
            raise WidenError(f"{out}: is not empty and holds no model, so --force does not replace it")


def _check_space(out: Path, needed: int) -> None:
    there = out.resolve()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < needed:
        raise WidenError(f"{out}: needs {needed / 1e9:.2f} GB of disk space; {free / 1e9:.2f} GB are free")


@contextmanager
def _taking_the_place_of(out: Path) -> Iterator[Path]:
    """A new folder that becomes `out` when the block ends well, and goes when it does not."""
    there = out.resolve()
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{there.name}-", dir=there.parent) as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        new.mkdir()
        yield new
        if there.exists():
            there.rename(old)
        try:
            new.rename(there)
        except BaseException:
            if old.exists():
                old.rename(there)
            raise


def _write_weights(
    checkpoint: _Checkpoint, folder: Path, intermediate_size: int, on_layer: Callable[[int, int], None]
) -> None:
    """Writes all tensors, in one file if they fit, otherwise in numbered ones with an index."""
    metadata = {"format": "pt"}
    for given in checkpoint.files.values():
        metadata |= given
    # safetensors makes files that only their owner can read; a server may run as someone else.
    mode = (folder / "config.json").stat().st_mode
    shards: list[list[str]] = []
    total_bytes = 0
    for shard in _shards(_widened_tensors(checkpoint, intermediate_size, on_layer)):
        path = folder / str(len(shards))
        save_file(shard, path, metadata)
        path.chmod(mode)
        total_bytes += sum(tensor.nbytes for tensor in shard.values())
        shards.append(list(shard))

    if len(shards) == 1:
        (folder / "0").rename(folder / _WEIGHTS)
        return
    weight_map = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        (folder / str(number)).rename(folder / file)
        weight_map.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def _shards(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[dict[str, torch.Tensor]]:
    """One dict, filled anew for each file: two would hold two files' tensors at a time."""
    shard: dict[str, torch.Tensor] = {}
    for name, tensor in tensors:
        if shard and sum(held.nbytes for held in shard.values()) + tensor.nbytes > SHARD_BYTES:
            yield shard
            shard.clear()
        shard[name] = tensor
    yield shard


def _widened_tensors(
    checkpoint: _Checkpoint, intermediate_size: int, on_layer: Callable[[int, int], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    total = sum(name.endswith("gate_proj.weight") for name in checkpoint.axes)
    done = 0
    for path in checkpoint.files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                tensor = file.get_tensor(name)
                if name in checkpoint.axes:
                    tensor = _padded(tensor, checkpoint.axes[name], intermediate_size)
                yield name, tensor
                if name in checkpoint.axes and name.endswith("gate_proj.weight"):
                    done += 1
                    on_layer(done, total)


def _padded(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """`tensor` with zeros after its end along `axis`, `size` long there; same dtype."""
    shape = list(tensor.shape)
    shape[axis] = size
    padded = tensor.new_zeros(shape)
    padded.narrow(axis, 0, tensor.shape[axis]).copy_(tensor)
    return padded
