"""The part of an EAGLE-3 head's pass that writes its KV cache."""

from typing import Any

import torch


def attention_of(head: Any, token_ids: torch.Tensor, positions: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Runs a head of one layer up to its attention, which writes all that later positions read of these.

    Args:
        head: vLLM's model.
        token_ids: [num_tokens] int32, of the positions after `positions`.
        positions: [num_tokens] int64.
        states: [num_tokens, any], the target's hidden states at `positions`.

    Returns:
        [num_tokens, hidden_size], output of the attention.
    """
    [layer] = head.model.layers
    embedded = layer.input_layernorm(head.model.embed_input_ids(token_ids))
    hidden, _ = layer._residual_norm(hidden_states=head.combine_hidden_states(states))
    attended: torch.Tensor = layer.self_attn(positions=positions, hidden_states=torch.cat([embedded, hidden], dim=-1))
    return attended
