"""vLLM's sampling: the types of its sampler's contract, and the parts of its pipeline that the plugin uses."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from vllm.config import SpeculativeConfig
from vllm.utils.torch_utils import make_tensor_with_pad
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.logits_processor import (
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.bad_words import apply_bad_words as _apply_bad_words
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

__all__ = [
    "LogprobsTensors",
    "RejectionSampler",
    "Sampler",
    "SamplerOutput",
    "SamplingMetadata",
    "SpecDecodeMetadata",
    "SpeculativeConfig",
    "apply_at_rows",
    "apply_bad_words",
    "apply_top_k_top_p",
    "gather_logprobs",
    "joined",
    "leaves_logits_alone",
    "limit_thinking",
    "most_likely",
    "needs_own_sampler",
    "needs_whole_batch",
    "padded",
    "verify_longest",
]


def apply_at_rows(
    processor: LogitsProcessor, logits: torch.Tensor, request_of_row: torch.Tensor, context: torch.Tensor
) -> torch.Tensor:
    """Applies a built-in logits processor, made for one row per request, to any number of rows per request.

    Args:
        processor: one of vLLM's three built-in processors.
        logits: [num_rows, vocab_size] float32, changed in place.
        request_of_row: [num_rows] int64.
        context: [num_rows, any] int64, draft tokens before each row, padded with negative values.

    Raises:
        TypeError: any other processor; vLLM refuses custom ones together with speculation.
    """
    if isinstance(processor, MinTokensLogitsProcessor):
        if processor.min_toks:
            _keep_going(processor, logits, request_of_row, context)
        return logits
    if isinstance(processor, LogitBiasLogitsProcessor):
        if processor.biases:
            num_requests = max(max(processor.biases), int(request_of_row.max())) + 1
            bias = torch.zeros(num_requests, logits.shape[-1], device=logits.device)
            logits += processor.apply(bias)[request_of_row]
        return logits
    if isinstance(processor, MinPLogitsProcessor):
        if processor.min_p_count:
            probs = logits.softmax(-1)
            floor = probs.amax(-1, keepdim=True) * processor.min_p[request_of_row]
            logits.masked_fill_(probs < floor, float("-inf"))
        return logits
    raise TypeError(f"logits processor {type(processor).__name__} is not supported at draft positions")


def _keep_going(
    processor: MinTokensLogitsProcessor, logits: torch.Tensor, request_of_row: torch.Tensor, context: torch.Tensor
) -> None:
    """Excludes the stop tokens of requests that have not output their `min_tokens` yet."""
    for request, (min_tokens, output, stop_token_ids, structured) in processor.min_toks.items():
        length = len(output) + (context >= 0).sum(1)
        rows = ((request_of_row == request) & (length < min_tokens)).nonzero()
        stops = torch.tensor(sorted(stop_token_ids), dtype=torch.int64, device=logits.device)
        kept = logits[rows, stops]
        logits[rows, stops] = float("-inf")
        if structured:
            # If a grammar allows stop tokens only, they stay.
            stuck = logits[rows.squeeze(1)].isneginf().all(1, keepdim=True)
            logits[rows, stops] = torch.where(stuck, kept, logits[rows, stops])


def leaves_logits_alone(metadata: SamplingMetadata) -> bool:
    """Whether vLLM's `SamplingMetadata` cannot change the argmax of any request."""
    return (
        metadata.no_penalties
        and metadata.allowed_token_ids_mask is None
        and not metadata.bad_words_token_ids
        and not any(
            getattr(processor, "min_toks", None) or getattr(processor, "biases", None)
            for processor in metadata.logitsprocs.non_argmax_invariant
        )
        and _thinking(metadata) is None
    )


def most_likely(logits: torch.Tensor) -> torch.Tensor:
    """Returns [num_rows] int64, the tokens of greedy requests by vLLM's function: the first maximum."""
    if logits.device.type == "cpu":
        logits = logits.float()
    greedy: torch.Tensor = Sampler.greedy_sample(logits)
    return greedy.long()


def needs_own_sampler(metadata: SamplingMetadata) -> bool:
    """Whether a step without drafts needs the plugin's sampler instead of vLLM's.

    Seeded requests need it, as their noise belongs to the output position, thinking budgets (`limit_thinking`), and
    given logprob tokens (`gather_logprobs`).
    """
    return bool(metadata.generators or metadata.logprob_token_ids) or _thinking(metadata) is not None


def needs_whole_batch(metadata: SamplingMetadata) -> bool:
    """Whether a step cannot be verified in parts: vLLM applies thinking budgets to a whole batch."""
    return _thinking(metadata) is not None


def gather_logprobs(
    sampler: Sampler,
    logprobs: torch.Tensor,
    tokens: torch.Tensor,
    metadata: SamplingMetadata,
    requests: range,
    width: int,
) -> LogprobsTensors:
    """Gathers the logprobs that each row's request asked for: of its `logprob_token_ids`, or of the likeliest tokens.

    vLLM's sampler has one row per request, and gives the likeliest tokens to no request of a batch in which one has
    `logprob_token_ids`.

    Args:
        sampler: vLLM's sampler.
        logprobs: [len(requests) * width, vocab_size] float32.
        tokens: [len(requests) * width] int64, sampled token of each row; its logprob and rank come first.
        metadata: vLLM's `SamplingMetadata` of the whole batch.
        requests: indices in the batch of the requests that have rows.
        width: number of rows of a request.

    Returns:
        vLLM's `LogprobsTensors`, of equal width for all parts of a batch. A request reads as many columns as it asked
        for.
    """
    given, num_likeliest = metadata.logprob_token_ids or {}, metadata.max_num_logprobs or 0
    likeliest: LogprobsTensors = sampler.gather_logprobs(logprobs, num_likeliest, tokens)
    if not given:
        return likeliest
    missing = max(0, max(map(len, given.values())) - num_likeliest)
    ids = torch.nn.functional.pad(likeliest.logprob_token_ids, (0, missing))
    values = torch.nn.functional.pad(likeliest.logprobs, (0, missing), value=float("-inf"))
    for index, request in enumerate(requests):
        if own := given.get(request):
            rows = slice(index * width, (index + 1) * width)
            columns = torch.tensor(own, device=logprobs.device)
            ids[rows, 1 : 1 + len(own)] = columns.to(ids.dtype)
            values[rows, 1 : 1 + len(own)] = logprobs[rows, columns]
    return LogprobsTensors(ids, values, likeliest.selected_token_ranks)


def joined(parts: Sequence[LogprobsTensors]) -> LogprobsTensors:
    """Returns vLLM's `LogprobsTensors` of several parts, below each other."""
    return parts[0] if len(parts) == 1 else LogprobsTensors.cat(parts)


def _thinking(metadata: SamplingMetadata) -> ThinkingBudgetStateHolder | None:
    """Returns vLLM's thinking budgets, if a request has one."""
    holder = metadata.thinking_budget_state_holder
    return holder if holder is not None and holder.has_tracked_requests() else None


def limit_thinking(logits: torch.Tensor, rows: torch.Tensor, metadata: SamplingMetadata) -> torch.Tensor:
    """Applies thinking budgets as vLLM's sampler does without speculation.

    With speculation vLLM's holder has another layout of rows, and may miss a second forced end.

    Args:
        logits: [num_rows, vocab_size] float32, changed in place.
        rows: [batch_size] int64, each request's first row; requests with a budget must have no other.
        metadata: vLLM's `SamplingMetadata`.
    """
    if (holder := _thinking(metadata)) is not None:
        holder.in_spec_mode = False
        holder.update_state(metadata.output_token_ids, None)
        logits[rows] = holder.apply_to_logits(logits[rows], False, None)
    return logits


def verify_longest(
    sampler: Callable[..., SamplerOutput],
    num_tokens: int,
    max_rows: int,
    draws: bool,
    step: SpecDecodeMetadata,
    draft_probs: torch.Tensor | None,
    logits: torch.Tensor,
    metadata: SamplingMetadata,
) -> SamplerOutput:
    """Verifies a full step of the longest drafts in place of vLLM's dummy step, which has one draft token per request.

    Args:
        sampler: the plugin's sampler.
        num_tokens: maximum draft tokens of a request.
        max_rows: maximum tokens of a step.
        draws: whether drafts may have dense q.
        step: vLLM's dummy `SpecDecodeMetadata`.
        draft_probs: q of the dummy step, not used.
        logits: [any, vocab_size], logits of the dummy step, not used.
        metadata: vLLM's dummy `SamplingMetadata`.
    """
    num_requests, vocab_size = len(step.num_draft_tokens), logits.shape[1]
    count = min(num_tokens, max(max_rows // num_requests - 1, 0))
    longest = SpecDecodeMetadata.make_dummy([[0] * count] * num_requests, logits.device)
    shape = num_requests * count, vocab_size
    q = torch.full(shape, 1 / vocab_size, device=logits.device) if draws and count else None
    return sampler(longest, q, logits.new_zeros(shape[0] + num_requests, vocab_size), metadata)


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], contexts: dict[int, list[int]]
) -> None:
    """Excludes, per row, the last token of each bad word whose other tokens end the row's context."""
    by_row: Any = contexts  # vLLM asks for a list, and only looks rows up
    _apply_bad_words(logits, bad_words, by_row)


def apply_top_k_top_p(logits: torch.Tensor, top_k: torch.Tensor | None, top_p: torch.Tensor | None) -> torch.Tensor:
    """Applies vLLM's masking in its torch version on every device; its Triton version is another algorithm."""
    if top_k is None and top_p is None:
        return logits
    return apply_top_k_top_p_pytorch(logits, top_k, top_p, allow_cpu_sync=logits.device.type == "cpu")


def padded(token_ids: list[list[int]], padding: int, device: torch.device) -> torch.Tensor:
    """Returns [batch_size, longest] int64, rows padded with `padding`."""
    return make_tensor_with_pad(token_ids, pad=padding, dtype=torch.int64, device="cpu").to(device)
