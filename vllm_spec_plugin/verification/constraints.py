"""A request's sampling pipeline, applied at every speculated position at once.

The order is vLLM's sampler's: allowed tokens, bad words, min tokens, logit bias, penalties, thinking
budget; then, for sampled requests, temperature, min-p, top-k, top-p.
"""

from dataclasses import dataclass
from typing import Any

import torch

from vllm_spec_plugin.compat import sampling as compat
from vllm_spec_plugin.verification.penalties import apply_penalties_, counts_with_drafts, token_counts
from vllm_spec_plugin.verification.rows import Rows

# vLLM samples a request of a lower temperature greedily.
GREEDY_TEMPERATURE = 1e-5


@dataclass(frozen=True)
class TargetRows:
    """The target's raw output for one step.

    Attributes:
        logits: [num_rows, vocab_size].
        draft_token_ids: [num_draft_tokens] int64.
        rows: which row is whose.
    """

    logits: torch.Tensor
    draft_token_ids: torch.Tensor
    rows: Rows


def constrain(target: TargetRows, metadata: Any) -> torch.Tensor:
    """Applies the sampling parameters of `metadata` (vLLM's `SamplingMetadata`) to a copy of the logits.

    Returns:
        [num_rows, vocab_size] float32, of which softmax is p for sampled requests, and argmax the
        token of greedy ones.
    """
    rows = target.rows
    logits = target.logits.to(torch.float32, copy=True)
    if metadata.allowed_token_ids_mask is not None:
        logits.masked_fill_(metadata.allowed_token_ids_mask[rows.request], float("-inf"))
    if metadata.bad_words_token_ids:
        _exclude_bad_words(logits, target, metadata)
    num_rows = (rows.num_draft_tokens + 1).tolist()
    for processor in metadata.logitsprocs.non_argmax_invariant:
        logits = compat.apply_at_rows(processor, logits, rows.request, num_rows)
    if not metadata.no_penalties:
        _penalise(logits, target, metadata)
    logits = _limit_thinking(logits, target, metadata)
    if metadata.all_greedy:
        return logits
    temperature = metadata.temperature[rows.request, None]
    logits /= torch.where(temperature < GREEDY_TEMPERATURE, 1.0, temperature)
    for processor in metadata.logitsprocs.argmax_invariant:
        logits = compat.apply_at_rows(processor, logits, rows.request, num_rows)
    top_k, top_p = (None if t is None else t[rows.request] for t in (metadata.top_k, metadata.top_p))
    return compat.apply_top_k_top_p(logits, top_k, top_p)


def _contexts(target: TargetRows, metadata: Any, request: int) -> list[list[int]]:
    """What one request has output before each of its rows."""
    start, count = (int(t[request]) for t in (target.rows.draft_start, target.rows.num_draft_tokens))
    drafts = target.draft_token_ids[start : start + count].tolist()
    output = metadata.output_token_ids[request]
    return [output + drafts[:j] for j in range(count + 1)]


def _exclude_bad_words(logits: torch.Tensor, target: TargetRows, metadata: Any) -> None:
    words, contexts = {}, {}
    for request, bad_words in metadata.bad_words_token_ids.items():
        first = int(target.rows.first[request])
        for j, context in enumerate(_contexts(target, metadata, request)):
            words[first + j], contexts[first + j] = bad_words, context
    compat.apply_bad_words(logits, words, contexts)


def _penalise(logits: torch.Tensor, target: TargetRows, metadata: Any) -> None:
    rows, vocab_size = target.rows, logits.shape[-1]
    output = compat.padded(metadata.output_token_ids, vocab_size, logits.device)
    counts = counts_with_drafts(token_counts(output, vocab_size), target.draft_token_ids, rows)
    in_prompt = token_counts(metadata.prompt_token_ids, vocab_size) > 0
    apply_penalties_(
        logits,
        in_prompt[rows.request],
        counts,
        metadata.repetition_penalties[rows.request],
        metadata.frequency_penalties[rows.request],
        metadata.presence_penalties[rows.request],
    )


def _limit_thinking(logits: torch.Tensor, target: TargetRows, metadata: Any) -> torch.Tensor:
    holder = metadata.thinking_budget_state_holder
    if holder is None or not holder.has_tracked_requests():
        return logits
    holder.update_state(metadata.output_token_ids, metadata.spec_token_ids, repeat_indices=None)
    rows = target.rows
    if rows.width == 1:
        limited: torch.Tensor = holder.apply_to_logits(logits, False, metadata.spec_token_ids)
        return limited
    # vLLM's holder knows bonus rows and draft rows only apart.
    bonus = rows.first + rows.num_draft_tokens
    logits[bonus] = holder.apply_to_logits(logits[bonus], True, metadata.spec_token_ids)
    logits[rows.draft_row] = holder.apply_to_logits(logits[rows.draft_row], False, metadata.spec_token_ids)
    return logits
