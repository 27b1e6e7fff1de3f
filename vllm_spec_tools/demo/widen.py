"""Widens a checkpoint: the same function at a larger model's cost.

A gated MLP computes down(act(gate(x)) * up(x)). A neuron whose gate, up and down weights are all zero
adds 0 to that, whatever x is, but its weights are read and multiplied like any others.
"""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch.nn.functional import pad

from vllm_spec_plugin.schema.errors import UserError

MULTIPLE = 64
# The neurons' dimension of each part of a gated MLP.
_NEURONS = {"gate_proj.weight": 0, "up_proj.weight": 0, "down_proj.weight": 1}
_WEIGHTS = "model.safetensors"


def widen(model: Path, out: Path, parameters: int) -> int:
    """Writes a model with more neurons per MLP, the added ones zero: the same function at a larger cost.

    The result's logits are the model's up to floating point: a longer sum may be rounded in another order.

    Args:
        model: folder of a Llama without biases, its weights in one file. Not changed.
        out: folder to write, new or empty.
        parameters: to reach, with the smallest multiple of `MULTIPLE` neurons.

    Returns:
        The parameters of the result.

    Raises:
        UserError: the model has more parameters, or `out` has other files.
    """
    config, tensors = json.loads((model / "config.json").read_text("utf-8")), load_file(model / _WEIGHTS)
    size = config["intermediate_size"]
    axes = {name: _NEURONS[part] for name in tensors if (part := name.rpartition(".mlp.")[2]) in _NEURONS}
    has = sum(tensor.numel() for tensor in tensors.values())
    per_neuron = sum(tensors[name].numel() // size for name in axes)
    if parameters < has:
        raise UserError(f"{model}: got {parameters:,} parameters to reach; allowed: from {has:,}, what it has")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is a file or not empty; allowed: a folder, new or empty")
    new_size = MULTIPLE * -((has - parameters - size * per_neuron) // (per_neuron * MULTIPLE))
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    (out / "config.json").write_text(json.dumps(config | {"intermediate_size": new_size}, indent=2) + "\n", "utf-8")
    for name, axis in axes.items():
        # Ends of the last dimension come first.
        tensors[name] = pad(tensors[name], (0, 0, 0, new_size - size) if axis == 0 else (0, new_size - size))
    save_file(tensors, out / _WEIGHTS, {"format": "pt"})
    # safetensors makes files that only their owner can read; a server may run as someone else.
    (out / _WEIGHTS).chmod((out / "config.json").stat().st_mode)
    return has + (new_size - size) * per_neuron
