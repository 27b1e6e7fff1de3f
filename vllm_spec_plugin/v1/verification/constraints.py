"""Applies requests' sampling pipelines at all speculated positions at once.

In the order of vLLM's sampler: allowed tokens, bad words, min tokens, logit bias, penalties, thinking budget; then, for
sampled requests, temperature, min-p, top-k, top-p.
"""

from dataclasses import dataclass, field

import torch

from vllm_spec_plugin.v1.compat import sampling as compat
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.penalties import add_counts_, apply_penalties_, token_counts

# vLLM samples a request of a lower temperature greedily.
GREEDY_TEMPERATURE = 1e-5


@dataclass(frozen=True)
class SpeculatedRows:
    """A model's raw output at positions after draft tokens.

    Attributes:
        logits: [num_rows, vocab_size], raw logits of the model.
        request: [num_rows] int64, each row's request, as an index in the batch.
        context: [num_rows, any] int64, draft tokens before each row, padded with negative values.
        requests: the consecutive requests of the batch that may have rows.
    """

    logits: torch.Tensor
    request: torch.Tensor
    context: torch.Tensor
    requests: slice = field(default_factory=lambda: slice(0, None), kw_only=True)

    def limit_thinking(self, logits: torch.Tensor, metadata: compat.SamplingMetadata) -> torch.Tensor:
        """Returns `logits` unchanged: thinking budgets apply to the target's rows only."""
        return logits


@dataclass(frozen=True)
class TargetRows(SpeculatedRows):
    """The target's raw output in one step, in the layout of `rows`."""

    rows: Rows

    @classmethod
    def of(
        cls,
        logits: torch.Tensor,
        draft_token_ids: torch.Tensor,
        rows: Rows,
        metadata: compat.SamplingMetadata,
        requests: slice = slice(0, None),
    ) -> "TargetRows":
        """Builds the rows that verify `draft_token_ids` ([num_draft_tokens] int64), with context if it is needed.

        `rows` counts requests from the first one of `requests`.
        """
        needs_context = not compat.leaves_logits_alone(metadata)
        context = rows.context(draft_token_ids) if needs_context else rows.request.new_empty(len(rows.request), 0)
        request = rows.request + requests.start if requests.start else rows.request
        return cls(logits, request, context, rows, requests=requests)

    def limit_thinking(self, logits: torch.Tensor, metadata: compat.SamplingMetadata) -> torch.Tensor:
        """Applies thinking budgets to `logits`; requests with a budget have no drafts."""
        return compat.limit_thinking(logits, self.rows.first, metadata)


def constrain(rows: SpeculatedRows, metadata: compat.SamplingMetadata, *, in_place: bool = False) -> torch.Tensor:
    """Applies the sampling parameters of `metadata` (vLLM's `SamplingMetadata`) to a copy of the logits.

    If all requests are greedy and nothing applies, it returns the logits themselves, read-only.

    Args:
        rows: output of the model.
        metadata: sampling parameters of the whole batch.
        in_place: whether float32 logits may be overwritten.

    Returns:
        [num_rows, vocab_size] float32; softmax of it is p for sampled requests, its argmax the token of greedy ones.
    """
    is_changed = not compat.leaves_logits_alone(metadata)
    logits = rows.logits.float()
    is_own = in_place or logits is not rows.logits
    if is_changed and not is_own:
        logits, is_own = logits.clone(), True
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
    assert metadata.temperature is not None, "a request samples"
    own = metadata.temperature[rows.request, None]
    divisor = torch.where(own < GREEDY_TEMPERATURE, 1.0, own)
    logits = torch.div(logits, divisor, out=logits if is_own else None)
    for processor in metadata.logitsprocs.argmax_invariant:
        logits = compat.apply_at_rows(processor, logits, rows.request, rows.context)
    top_k, top_p = (None if t is None else t[rows.request] for t in (metadata.top_k, metadata.top_p))
    return compat.apply_top_k_top_p(logits, top_k, top_p)


def _exclude_bad_words(logits: torch.Tensor, rows: SpeculatedRows, metadata: compat.SamplingMetadata) -> None:
    words, contexts = {}, {}
    for row, (request, context) in enumerate(zip(rows.request.tolist(), rows.context.tolist(), strict=True)):
        if bad_words := metadata.bad_words_token_ids.get(request):
            words[row] = bad_words
            contexts[row] = metadata.output_token_ids[request] + [token for token in context if token >= 0]
    compat.apply_bad_words(logits, words, contexts)


def _penalise(logits: torch.Tensor, rows: SpeculatedRows, metadata: compat.SamplingMetadata) -> None:
    assert metadata.prompt_token_ids is not None, "vLLM has them where a request has penalties"
    vocab_size, own = logits.shape[-1], rows.request - rows.requests.start
    output = compat.padded(metadata.output_token_ids[rows.requests], vocab_size, logits.device)
    counts = add_counts_(token_counts(output, vocab_size)[own], rows.context)
    in_prompt = token_counts(metadata.prompt_token_ids[rows.requests], vocab_size) > 0
    apply_penalties_(
        logits,
        in_prompt[own],
        counts,
        metadata.repetition_penalties[rows.request],
        metadata.frequency_penalties[rows.request],
        metadata.presence_penalties[rows.request],
    )
