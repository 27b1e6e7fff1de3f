"""The heads that training starts from."""

import torch

from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaCheckpointError, load_heads, read_heads_config
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.backbone import Backbone


def first_heads(backbone: Backbone, num_heads: int, num_layers: int) -> MedusaHeads:
    """Heads that all say what the target itself says next (Cai et al., section 2.2.1).

    The residual blocks add nothing and the projection is the target's output layer.
    """
    heads = MedusaHeads(
        backbone.hidden_size, backbone.vocab_size, num_heads, num_layers, torch.float32, backbone.device
    )
    with torch.no_grad():
        heads.projection.copy_(backbone.output_layer.weight.float().T)
    return heads


def given_heads(backbone: Backbone, model: str, num_heads: int | None) -> MedusaHeads:
    """Heads from a folder or the hub, in either layout, to go on with.

    Raises:
        UserError: they cannot be read or do not fit the target.
    """
    try:
        heads = load_heads(
            model, backbone.hidden_size, backbone.vocab_size, torch.float32, backbone.device, num_heads=num_heads
        )
    except MedusaCheckpointError as error:
        raise UserError(f"--from: {error}") from None
    return heads.requires_grad_(True)


def given_shape(model: str) -> tuple[int, int]:
    """How many heads there are in a folder or on the hub, and of how many layers.

    Raises:
        UserError: they cannot be read.
    """
    try:
        config = read_heads_config(model)
    except MedusaCheckpointError as error:
        raise UserError(f"--from: {error}") from None
    return config.num_heads, config.num_layers
