"""EAGLE-3 heads on disk: config.json and safetensors, of which only shapes and the vocabulary's map are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_spec_plugin.proposers.eagle3.layout import HeadConfig, read_layout
from vllm_spec_plugin.proposers.model_files import (
    INDEX,
    WEIGHTS,
    UnreadableError,
    indexed_files,
    read_json,
    read_tensors,
    tensor_shapes,
)
from vllm_spec_plugin.proposers.model_source import local_folder
from vllm_spec_plugin.schema.errors import show_file, show_text

ALLOWED = f"a folder with config.json and {WEIGHTS}"
_ADVICE = "download the head again or train one with vllm-spec train-eagle3"
_MAP, _IS_MAPPED = "d2t", "t2d"
# The original's name of the only layer, and a name that some write before all.
_RENAMED = (("model.", ""), ("midlayer.", "layers.0."))


@dataclass(frozen=True)
class Head:
    """A head that is complete in itself; its weights are not loaded.

    Attributes:
        folder: of config.json and the weights.
        config: properties.
        files: file of each tensor, by the name of the speculators layout.
        names: name in that file, by the same.
        target_ids: [draft_vocab_size] int64, the target's token of each of the head's; None is the same.
        has_embedding: whether it has an embedding of its own; others use the target's.
    """

    folder: Path
    config: HeadConfig
    files: Mapping[str, Path]
    names: Mapping[str, str]
    target_ids: torch.Tensor | None
    has_embedding: bool

    def weights(self) -> dict[str, torch.Tensor]:
        """Loads all tensors but the vocabulary's map, by the names of the speculators layout, on the CPU."""
        wanted = [name for name in self.files if name not in (_MAP, _IS_MAPPED)]
        return {name: _tensor(self.files[name], self.names[name]) for name in wanted}


def read_head(model: str) -> Head:
    """Reads a head's config, shapes and map, and checks that they agree.

    Args:
        model: a folder or a name on the Hugging Face hub, from which its files are downloaded.

    Raises:
        UnreadableError: one message that names file and key.
    """
    folder = local_folder(model, ["config.json", INDEX, "*.safetensors"], ALLOWED)
    config = read_layout(read_json(folder / "config.json", f"allowed: {ALLOWED}"), show_file(folder / "config.json"))
    files, names, shapes = {}, {}, {}
    for path in indexed_files(folder, f"allowed: files of this folder; {_ADVICE}") or [_weight_file(folder)]:
        for original, shape in tensor_shapes(path, f"allowed: {ALLOWED}").items():
            if "rotary_emb." in original:
                continue
            name = _speculators_name(original)
            files[name], names[name], shapes[name] = path, original, shape
    _check_shapes(config, shapes, folder)
    target_ids = _target_ids(config, files, names)
    return Head(folder, config, files, names, target_ids, "embed_tokens.weight" in files)


def _check_shapes(config: HeadConfig, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    wanted = config.tensor_shapes()
    optional: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    optional |= {_MAP: (config.draft_vocab_size,), _IS_MAPPED: (config.vocab_size,)}
    # vLLM builds this norm in every layer and uses that of the first.
    optional |= {f"layers.{i}.hidden_norm.weight": (config.hidden_size,) for i in range(1, config.num_layers)}
    for name, shape in wanted.items():
        if name not in shapes:
            raise UnreadableError(
                f"{show_file(folder)}: tensor '{name}' is missing; allowed: an EAGLE-3 head with {name} {list(shape)}; "
                f"{_ADVICE}"
            )
    for name, found in shapes.items():
        allowed = (wanted | optional).get(name)
        if allowed is None:
            raise UnreadableError(
                f"{show_file(folder)}: unknown tensor '{show_text(name)}'; allowed: those of an EAGLE-3 head with "
                f"{config.num_layers} layers, as config.json says; {_ADVICE}"
            )
        if found != allowed:
            raise UnreadableError(
                f"{show_file(folder)}: tensor '{name}' has the shape {list(found)}; allowed: {list(allowed)}, by the "
                f"sizes in config.json; {_ADVICE}"
            )


def _target_ids(config: HeadConfig, files: Mapping[str, Path], names: Mapping[str, str]) -> torch.Tensor | None:
    """Reads `d2t`, offsets from the head's token ids to the target's, and compares it with `t2d`."""
    if _MAP not in files:
        if config.draft_vocab_size != config.vocab_size:
            raise UnreadableError(
                f"{show_file(files['fc.weight'])}: tensor '{_MAP}' is missing; allowed: with a draft_vocab_size of "
                f"{config.draft_vocab_size:,} the map to the {config.vocab_size:,} tokens of the target; {_ADVICE}"
            )
        return None
    shown = f"{show_file(files[_MAP])}: tensor '{_MAP}'"
    offsets = _tensor(files[_MAP], names[_MAP])
    if offsets.is_floating_point() or offsets.is_complex():
        raise UnreadableError(f"{shown} has the type {offsets.dtype}; allowed: whole numbers; {_ADVICE}")
    ids = torch.arange(config.draft_vocab_size) + offsets.long()
    outside = ((ids < 0) | (ids >= config.vocab_size)).nonzero().flatten()
    if len(outside):
        i = int(outside[0])
        raise UnreadableError(
            f"{shown} maps the head's token {i} to {int(ids[i])}; allowed: offsets that lead to 0 to "
            f"{config.vocab_size - 1}, the target's tokens; {_ADVICE}"
        )
    if len(set(ids.tolist())) < len(ids):
        raise UnreadableError(f"{shown} maps two tokens to one; allowed: each token once; {_ADVICE}")
    if _IS_MAPPED in files:
        is_mapped = torch.zeros(config.vocab_size, dtype=torch.bool)
        is_mapped[ids] = True
        if not torch.equal(_tensor(files[_IS_MAPPED], names[_IS_MAPPED]).bool(), is_mapped):
            raise UnreadableError(
                f"{shown} and '{_IS_MAPPED}' name different tokens; allowed: {_IS_MAPPED} true for exactly the tokens "
                f"of {_MAP}; {_ADVICE}"
            )
    return ids


def _weight_file(folder: Path) -> Path:
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS
    pickled = next((path.name for pattern in ("*.bin", "*.pt") for path in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        raise UnreadableError(
            f"{show_file(folder)}: has {show_text(pickled)}, a torch file, which may run code when it is opened; "
            f"allowed: {WEIGHTS}; convert it where you trust it, with safetensors.torch.save_file(torch.load(...), "
            f"'{WEIGHTS}')"
        )
    raise UnreadableError(f"{show_file(folder)}: has no weights; allowed: {ALLOWED}")


def _tensor(path: Path, name: str) -> torch.Tensor:
    return read_tensors(path, [name])[name]


def _speculators_name(name: str) -> str:
    for start, instead in _RENAMED:
        if name.startswith(start):
            name = instead + name.removeprefix(start)
    return name
