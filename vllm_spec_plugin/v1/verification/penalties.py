"""Applies repetition, frequency and presence penalties at every speculated position."""

import torch


def token_counts(token_ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Returns [batch_size, vocab_size] int32, number of occurrences of each token.

    Args:
        token_ids: [batch_size, length] int64; entries outside [0, vocab_size) are padding.
        vocab_size: size of the vocabulary.
    """
    padding = (token_ids < 0) | (token_ids >= vocab_size)
    counts = torch.zeros(len(token_ids), vocab_size + 1, dtype=torch.int32, device=token_ids.device)
    ones = torch.ones_like(token_ids, dtype=torch.int32)
    counts.scatter_add_(1, token_ids.masked_fill(padding, vocab_size), ones)
    return counts[:, :vocab_size]


def add_counts_(counts: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """Adds each token's occurrences in `context` to `counts`, in place, and returns them.

    Args:
        counts: [num_rows, vocab_size] int32, changed in place.
        context: [num_rows, any] int64, draft tokens before each row, padded with negative values.
    """
    return counts.scatter_add_(1, context.clamp_min(0), (context >= 0).to(counts.dtype))


def apply_penalties_(
    logits: torch.Tensor,
    in_prompt: torch.Tensor,
    output_counts: torch.Tensor,
    repetition: torch.Tensor,
    frequency: torch.Tensor,
    presence: torch.Tensor,
) -> torch.Tensor:
    """Penalises `logits` in place, as vLLM's sampler does, and returns them.

    Args:
        logits: [num_rows, vocab_size] float32, changed in place.
        in_prompt: [num_rows, vocab_size] bool, whether each token is in the prompt.
        output_counts: [num_rows, vocab_size], occurrences in the output before the row.
        repetition: [num_rows], divisor of positive and factor of negative logits, for tokens in prompt or output.
        frequency: [num_rows], subtracted per occurrence in the output.
        presence: [num_rows], subtracted once for tokens in the output.
    """
    in_output = output_counts > 0
    factor = torch.where(in_prompt | in_output, repetition[:, None], 1.0)
    logits.copy_(torch.where(logits > 0, logits / factor, logits * factor))
    logits.sub_(frequency[:, None] * output_counts)
    return logits.sub_(presence[:, None] * in_output)
