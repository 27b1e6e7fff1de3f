"""Reads the weights of Medusa heads, from safetensors or a torch file."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_spec_plugin.proposers.model_files import WEIGHTS, UnreadableError, read_tensors, tensor_shapes
from vllm_spec_plugin.schema.errors import show_file, show_reason, show_text

OUR_FILE = "medusa_lm_head.safetensors"
FILES = (OUR_FILE, "medusa_lm_head.pt", WEIGHTS)
ALLOWED = f"a folder with config.json and {FILES[0]} or {FILES[1]}"
# Heads saved with their model have a prefix, and are beside the model's tensors.
_NAME = re.compile(
    r"(?P<prefix>medusa_heads?\.)?(?P<head>\d+)\.(?P<rest>\d+\.(?:linear\.weight|linear\.bias|weight|bias))"
)


@dataclass(frozen=True)
class TensorFile:
    """The heads' tensors in one file.

    Attributes:
        path: path of the file.
        names: full name of each tensor, by its head and the rest of its name.
        shapes: shape of each tensor, by full name.
    """

    path: Path
    names: dict[tuple[int, str], str]
    shapes: dict[str, tuple[int, ...]]

    @property
    def num_heads(self) -> int:
        return 1 + max(head for head, _ in self.names)

    @property
    def num_layers(self) -> int:
        return sum(head == 0 and rest.endswith(".linear.weight") for head, rest in self.names)

    @property
    def vocab_size(self) -> int:
        return self._shape(0, f"{self.num_layers}.weight")[0]

    @property
    def hidden_size(self) -> int:
        return self._shape(0, f"{self.num_layers}.weight")[1]

    def _shape(self, head: int, rest: str) -> tuple[int, ...]:
        return self.shapes[self.names[head, rest]]

    def check(self) -> None:
        """Checks that every head has all its tensors, of the same sizes.

        Raises:
            UnreadableError: names the file and the tensor.
        """
        layers = self.num_layers
        expected = {f"{layers}.weight": 2}
        for layer in range(layers):
            expected |= {f"{layer}.linear.weight": 2, f"{layer}.linear.bias": 1}
        for head in range(self.num_heads):
            for rest, dimensions in expected.items():
                name = self.names.get((head, rest))
                if name is None:
                    raise self._missing(head, rest, layers)
                if len(self.shapes[name]) != dimensions:
                    raise self._misshapen(name, f"{dimensions} dimensions")
        vocab_size, hidden_size = self.vocab_size, self.hidden_size
        sizes = {1: (hidden_size,), 2: (hidden_size, hidden_size)}
        for (_, rest), name in self.names.items():
            if rest not in expected:
                raise UnreadableError(
                    f"{show_file(self.path)}: unknown tensor {name!r} in heads of {layers} layers; allowed: "
                    f"{', '.join(expected)} of each head"
                )
            size = sizes[expected[rest]] if ".linear." in rest else (vocab_size, hidden_size)
            if self.shapes[name] != size:
                raise self._misshapen(name, f"{list(size)}, by the first head's projection")

    def _missing(self, head: int, rest: str, layers: int) -> UnreadableError:
        return UnreadableError(
            f"{show_file(self.path)}: tensor '{head}.{rest}' is missing; allowed: heads 0 to {self.num_heads - 1} with "
            f"the same {layers} layers and a projection '{layers}.weight' each; train or download the heads again"
        )

    def _misshapen(self, name: str, expected: str) -> UnreadableError:
        return UnreadableError(
            f"{show_file(self.path)}: tensor {name!r} has the shape {list(self.shapes[name])}; allowed: {expected}; "
            "train or download the heads again"
        )

    def read(self) -> dict[str, torch.Tensor]:
        """Returns all heads' tensors by full name, on the CPU, in the saved dtype."""
        if self.path.suffix == ".pt":
            state = _load_torch(self.path)
            return {name: state[name] for name in self.names.values()}
        return read_tensors(self.path, self.names.values())


def open_tensors(folder: Path) -> TensorFile:
    """Finds the weights of heads in a folder, and checks names and shapes of the tensors.

    Raises:
        UnreadableError: there is no such file, it cannot be read, or heads are missing or incomplete.
    """
    for name in FILES:
        path = folder / name
        if path.is_file():
            break
    else:
        raise UnreadableError(f"{show_file(folder)}: has no weights; allowed: {ALLOWED}")
    shapes = _torch_shapes(path) if path.suffix == ".pt" else tensor_shapes(path, f"allowed: {ALLOWED}")
    names = _heads_tensors(shapes)
    if not names:
        shown = ", ".join(show_text(name) for name in list(shapes)[:3]) or "nothing"
        raise UnreadableError(
            f"{show_file(path)}: has no Medusa heads, but {shown}; allowed: tensors '0.0.linear.weight', "
            "'0.0.linear.bias', '0.1.weight' and so on, with or without 'medusa_head.' before them"
        )
    file = TensorFile(path, names, {name: shapes[name] for name in names.values()})
    file.check()
    return file


def _heads_tensors(names: Iterable[str]) -> dict[tuple[int, str], str]:
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    return {(int(match["head"]), match["rest"]): match.string for match in matches}


def _torch_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in _load_torch(path).items()}


def _load_torch(path: Path) -> dict[str, torch.Tensor]:
    import pickle

    allowed = "allowed: a plain state dict of tensors; anything else could run code and is not opened. Save it again "
    allowed += "with torch.save(heads.state_dict(), ...) or as safetensors"
    try:
        state = None
        with suppress(RuntimeError):  # the older of torch's two formats cannot be mapped
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if state is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UnreadableError(f"{show_file(path)}: is not a plain state dict; {allowed}") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UnreadableError(f"{show_file(path)}: cannot be read: {show_reason(error)}; {allowed}") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UnreadableError(f"{show_file(path)}: is not a plain state dict; {allowed}")
    return {str(name): tensor for name, tensor in state.items()}
