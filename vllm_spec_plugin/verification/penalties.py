"""Repetition, frequency and presence penalties at every speculated position."""

import torch

from vllm_spec_plugin.verification.rows import Rows


def token_counts(token_ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """[batch_size, vocab_size] int32: how often each token occurs.

    Args:
        token_ids: [batch_size, length] int64; entries outside [0, vocab_size) are padding.
        vocab_size: tokens there are.
    """
    padding = (token_ids < 0) | (token_ids >= vocab_size)
    counts = torch.zeros(len(token_ids), vocab_size + 1, dtype=torch.int32, device=token_ids.device)
    ones = torch.ones_like(token_ids, dtype=torch.int32)
    counts.scatter_add_(1, token_ids.masked_fill(padding, vocab_size), ones)
    return counts[:, :vocab_size]


def counts_with_drafts(counts: torch.Tensor, draft_token_ids: torch.Tensor, rows: Rows) -> torch.Tensor:
    """[num_rows, vocab_size]: each row's counts, the drafts before it included.

    Args:
        counts: [batch_size, vocab_size] of the tokens output so far.
        draft_token_ids: [num_draft_tokens] int64, negative where nothing was drafted.
        rows: the step's layout.
    """
    grown = counts[rows.request]
    columns = torch.arange(rows.width - 1, device=counts.device)
    drafts = torch.full((len(rows.first), rows.width), -1, dtype=torch.int64, device=counts.device)
    drafts[rows.request[rows.draft_row], rows.offset[rows.draft_row]] = draft_token_ids
    before = drafts[rows.request, :-1]
    seen = (columns < rows.offset[:, None]) & (before >= 0)
    return grown.scatter_add_(1, before.clamp_min(0), seen.to(grown.dtype))


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
        logits: [num_rows, vocab_size] float32.
        in_prompt: [num_rows, vocab_size] bool.
        output_counts: [num_rows, vocab_size], tokens output before the row.
        repetition: [num_rows], divides positive and multiplies negative logits of tokens seen anywhere.
        frequency: [num_rows], subtracted per occurrence in the output.
        presence: [num_rows], subtracted once for tokens in the output.
    """
    in_output = output_counts > 0
    factor = torch.where(in_prompt | in_output, repetition[:, None], 1.0)
    logits.copy_(torch.where(logits > 0, logits / factor, logits * factor))
    logits.sub_(frequency[:, None] * output_counts)
    return logits.sub_(presence[:, None] * in_output)
