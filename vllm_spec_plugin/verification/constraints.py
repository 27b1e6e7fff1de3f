"""A request's sampling pipeline, applied at every speculated position at once.

The order is vLLM's sampler's: allowed tokens, bad words, min tokens, logit bias, penalties, thinking
budget; then, for sampled requests, temperature, min-p, top-k, top-p.
"""

from dataclasses import dataclass
from typing import Any

import torch

from vllm_spec_plugin.compat import sampling as compat
from vllm_spec_plugin.verification.penalties import add_counts_, apply_penalties_, token_counts
from vllm_spec_plugin.verification.rows import Rows

# vLLM samples a request of a lower temperature greedily.
GREEDY_TEMPERATURE = 1e-5


@dataclass(frozen=True)
class SpeculatedRows:
    """A model's raw output at positions that follow drafts.

    Attributes:
        logits: [num_rows, vocab_size].
        request: [num_rows] int64, each row's place in the batch.
        context: [num_rows, most] int64, the drafts before each row, negative where there are fewer.
    """

    logits: torch.Tensor
    request: torch.Tensor
    context: torch.Tensor

    def limit_thinking(self, logits: torch.Tensor, metadata: Any) -> torch.Tensor:
        """Applies vLLM's thinking budgets, of which only the target's rows are kept account."""
        return logits


@dataclass(frozen=True)
class TargetRows(SpeculatedRows):
    """The target's raw output for one step, in the layout of `rows`."""

    rows: Rows

    @classmethod
    def of(cls, logits: torch.Tensor, draft_token_ids: torch.Tensor, rows: Rows) -> "TargetRows":
        """The rows that judge `draft_token_ids` ([num_draft_tokens] int64)."""
        return cls(logits, rows.request, rows.context(draft_token_ids), rows)

    def limit_thinking(self, logits: torch.Tensor, metadata: Any) -> torch.Tensor:
        """Changes `logits` where a request has to stop thinking."""
        holder = metadata.thinking_budget_state_holder
        if holder is None or not holder.has_tracked_requests():
            return logits
        holder.update_state(metadata.output_token_ids, metadata.spec_token_ids, repeat_indices=None)
        rows = self.rows
        if rows.width == 1:
            limited: torch.Tensor = holder.apply_to_logits(logits, False, metadata.spec_token_ids)
            return limited
        # vLLM's holder knows bonus rows and draft rows only apart.
        bonus = rows.first + rows.num_draft_tokens
        logits[bonus] = holder.apply_to_logits(logits[bonus], True, metadata.spec_token_ids)
        logits[rows.draft_row] = holder.apply_to_logits(logits[rows.draft_row], False, metadata.spec_token_ids)
        return logits


def constrain(rows: SpeculatedRows, metadata: Any, temperature: float | None = None) -> torch.Tensor:
    """Applies the sampling parameters of `metadata` (vLLM's `SamplingMetadata`) to a copy of the logits.

    Where there is nothing to apply the logits themselves are returned: not to be written.

    Args:
        rows: what to apply them to.
        metadata: of the whole batch.
        temperature: of sampled requests, in place of their own.

    Returns:
        [num_rows, vocab_size] float32, of which softmax is p for sampled requests, and argmax the
        token of greedy ones.
    """
    if metadata.all_greedy and compat.leaves_logits_alone(metadata):
        return rows.logits.float()
    logits = rows.logits.to(torch.float32, copy=True)
    if metadata.allowed_token_ids_mask is not None:
        logits.masked_fill_(metadata.allowed_token_ids_mask[rows.request], float("-inf"))
    if metadata.bad_words_token_ids:
        _exclude_bad_words(logits, rows, metadata)
    for processor in metadata.logitsprocs.non_argmax_invariant:
        logits = compat.apply_at_rows(processor, logits, rows.request, rows.context)
    if not metadata.no_penalties:
        _penalise(logits, rows, metadata)
    logits = rows.limit_thinking(logits, metadata)
    if metadata.all_greedy:
        return logits
    own = metadata.temperature[rows.request, None]
    divisor = own if temperature is None else torch.full_like(own, temperature)
    logits /= torch.where(own < GREEDY_TEMPERATURE, 1.0, divisor)
    for processor in metadata.logitsprocs.argmax_invariant:
        logits = compat.apply_at_rows(processor, logits, rows.request, rows.context)
    top_k, top_p = (None if t is None else t[rows.request] for t in (metadata.top_k, metadata.top_p))
    return compat.apply_top_k_top_p(logits, top_k, top_p)


def _exclude_bad_words(logits: torch.Tensor, rows: SpeculatedRows, metadata: Any) -> None:
    words, contexts = {}, {}
    for row, (request, context) in enumerate(zip(rows.request.tolist(), rows.context.tolist(), strict=True)):
        if bad_words := metadata.bad_words_token_ids.get(request):
            words[row] = bad_words
            contexts[row] = metadata.output_token_ids[request] + [token for token in context if token >= 0]
    compat.apply_bad_words(logits, words, contexts)


def _penalise(logits: torch.Tensor, rows: SpeculatedRows, metadata: Any) -> None:
    vocab_size = logits.shape[-1]
    output = compat.padded(metadata.output_token_ids, vocab_size, logits.device)
    counts = add_counts_(token_counts(output, vocab_size)[rows.request], rows.context)
    in_prompt = token_counts(metadata.prompt_token_ids, vocab_size) > 0
    apply_penalties_(
        logits,
        in_prompt[rows.request],
        counts,
        metadata.repetition_penalties[rows.request],
        metadata.frequency_penalties[rows.request],
        metadata.presence_penalties[rows.request],
    )
