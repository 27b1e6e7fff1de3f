"""Pads the bundled models with zeros to the shape of a larger Llama, whose outputs are the same.

    python -m benchmarks.gpu.padding FOLDER [--size 8b]

Hidden dimensions, neurons, heads and layers that are added contribute 0 to the residual stream. RMSNorm divides by the
root of the mean over more dimensions: a factor of 4 in their number is a factor of 2 in its weights, which is exact.
Added layers end in zeros (o_proj, down_proj), after random weights that are read and multiplied like any others. The
vocabulary stays: added tokens would have a logit of 0, which is not the lowest.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file, save_file

from vllm_spec_plugin.models import model_path

_LAYERS = "layers."


@dataclass(frozen=True)
class Dimensions:
    """Dimensions of a Llama, or of an EAGLE-3 head for one."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Dimensions":
        """Reads a model's config.json."""
        keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        return cls(*(config[key] for key in (*keys, "head_dim")))

    @property
    def settings(self) -> dict[str, int]:
        """The keys of config.json."""
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }


# By size and model; the head has one layer, of the target's shape.
SIZES = {
    "8b": {
        "target": Dimensions(4096, 14336, 32, 64, 16, 64),
        "draft": Dimensions(768, 8192, 24, 12, 2, 64),
        "eagle3": Dimensions(4096, 14336, 1, 64, 16, 64),
    },
    "3b": {
        "target": Dimensions(4096, 14336, 12, 64, 16, 64),
        "draft": Dimensions(768, 4096, 12, 12, 2, 64),
        "eagle3": Dimensions(4096, 14336, 1, 64, 16, 64),
    },
    "tiny": {
        "target": Dimensions(1024, 1024, 5, 8, 2, 64),
        "draft": Dimensions(768, 512, 3, 12, 2, 64),
        "eagle3": Dimensions(1024, 1024, 1, 8, 2, 64),
    },
}


def pad_model(model: Path, out: Path, to: Dimensions, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> int:
    """Writes a padded model, layer by layer, and returns the bytes of its weights.

    Args:
        model: folder of a Llama or of an EAGLE-3 head, in one safetensors file.
        out: folder to write.
        to: dimensions, each at least the model's; the hidden size times a power of 4. Another head size rounds queries,
            as they are scaled by its root.
        dtype: of the weights.
        seed: of added layers.

    Raises:
        ValueError: the model cannot be padded to these dimensions.
    """
    config = json.loads((model / "config.json").read_text())
    inner = config.get("transformer_layer_config", config)
    padding = _Padding(Dimensions.of(inner), to)
    out.mkdir(parents=True)
    for path in model.iterdir():
        if path.suffix != ".safetensors" and path.name != "config.json":
            shutil.copy(path, out / path.name)
    rope = inner["rope_parameters"]
    # The same angles for the same dimensions of a wider head.
    rope["rope_theta"] **= to.head_dim / padding.before.head_dim
    inner |= to.settings | {"rms_norm_eps": inner["rms_norm_eps"] * padding.before.hidden / to.hidden}
    inner["dtype"] = str(dtype).removeprefix("torch.")
    if "target_hidden_size" in config:
        config["target_hidden_size"] = to.hidden
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = load_file(model / "model.safetensors")
    files: dict[str, str] = {}
    size = 0
    for name, part in _parts(tensors, padding, seed):
        whole = {key: tensor.to(dtype).contiguous() for key, tensor in part.items()}
        save_file(whole, out / name, {"format": "pt"})
        files |= dict.fromkeys(whole, name)
        size += sum(tensor.nbytes for tensor in whole.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    return size


def _parts(
    tensors: Mapping[str, torch.Tensor], padding: "_Padding", seed: int
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Yields each file's name and tensors: first those outside layers, then one file per layer."""
    generator = torch.Generator().manual_seed(seed)
    prefix = next(name for name in tensors if _LAYERS in name).partition(_LAYERS)[0] + _LAYERS
    yield (
        "model-0.safetensors",
        {name: padding.padded(name, tensor) for name, tensor in tensors.items() if not name.startswith(prefix)},
    )
    names = [name.removeprefix(f"{prefix}0.") for name in tensors if name.startswith(f"{prefix}0.")]
    for layer in range(padding.after.layers):
        part = {}
        for name in names:
            if layer < padding.before.layers:
                part[f"{prefix}{layer}.{name}"] = padding.padded(name, tensors[f"{prefix}{layer}.{name}"])
                continue
            shape = padding.padded(name, tensors[f"{prefix}0.{name}"]).shape
            added = torch.zeros(shape) if name.startswith(("self_attn.o_proj", "mlp.down_proj")) else torch.ones(shape)
            if len(shape) > 1 and added.any():
                added.normal_(std=0.02, generator=generator)
            part[f"{prefix}{layer}.{name}"] = added
        yield f"model-{layer + 1}.safetensors", part


class _Padding:
    """Pads tensors from some dimensions to others."""

    def __init__(self, before: Dimensions, after: Dimensions) -> None:
        self.before, self.after = before, after
        factor = math.log2(after.hidden / before.hidden) / 2
        per_kv = before.heads // before.kv_heads, after.heads // after.kv_heads
        if not (factor.is_integer() and factor >= 0):
            raise ValueError(f"hidden size {after.hidden}: allowed: {before.hidden} times a power of 4")
        if per_kv[1] < per_kv[0] or any(
            new < old for old, new in zip(vars(before).values(), vars(after).values(), strict=True)
        ):
            raise ValueError(f"{after}: each dimension must be at least that of {before}")
        self._norm = 2.0**-factor
        half, new_half = before.head_dim // 2, after.head_dim // 2
        within = torch.cat([torch.arange(half), new_half + torch.arange(half)])
        queries = [(head // per_kv[0]) * per_kv[1] + head % per_kv[0] for head in range(before.heads)]
        self._query_dims = _dims(queries, after.head_dim, within)
        self._kv_dims = _dims(range(before.kv_heads), after.head_dim, within)

    def padded(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the larger model in float32, by its name."""
        before, after = self.before, self.after
        tensor = tensor.float()
        if "norm" in name:
            return torch.nn.functional.pad(tensor * self._norm, (0, after.hidden - before.hidden))
        kind = name.split(".")[-2]
        hidden, rows = after.hidden, torch.arange(tensor.shape[0])
        if kind in ("embed_tokens", "lm_head"):
            return self._placed(tensor, rows, tensor.shape[0])
        if kind == "q_proj":
            scale = math.sqrt(after.head_dim / before.head_dim)
            return self._placed(tensor * scale, self._query_dims, after.heads * after.head_dim)
        if kind in ("k_proj", "v_proj"):
            return self._placed(tensor, self._kv_dims, after.kv_heads * after.head_dim)
        if kind in ("gate_proj", "up_proj"):
            return self._placed(tensor, rows, after.intermediate)
        if kind == "fc":
            return self._placed(tensor, rows, hidden)
        out = torch.zeros(hidden, after.heads * after.head_dim if kind == "o_proj" else after.intermediate)
        out[: before.hidden, self._query_dims if kind == "o_proj" else slice(before.intermediate)] = tensor
        return out

    def _placed(self, tensor: torch.Tensor, rows: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Returns a matrix on hidden states, several of them side by side for a head, with its rows at `rows`."""
        blocks = tensor.shape[1] // self.before.hidden
        out = torch.zeros(num_rows, blocks, self.after.hidden)
        out[rows, :, : self.before.hidden] = tensor.view(tensor.shape[0], blocks, -1)
        return out.flatten(1)


def _dims(heads: Any, head_dim: int, within: torch.Tensor) -> torch.Tensor:
    return (torch.tensor(list(heads))[:, None] * head_dim + within).flatten()


def main(
    folder: Annotated[Path, typer.Argument(help="Folder to write target, draft and eagle3 to.")],
    size: Annotated[str, typer.Option(help=f"Size: {', '.join(SIZES)}.")] = "8b",
    dtype: Annotated[str, typer.Option(help="Type of the weights.")] = "bfloat16",
) -> None:
    """Pads the bundled target, draft model and EAGLE-3 head with zeros, to a real model's cost."""
    for name, dimensions in SIZES[size].items():
        num_bytes = pad_model(model_path(name), folder / name, dimensions, getattr(torch, dtype))
        typer.echo(f"{folder / name}: {num_bytes / 1e9:.2f} GB", err=True)


if __name__ == "__main__":
    typer.run(main)
