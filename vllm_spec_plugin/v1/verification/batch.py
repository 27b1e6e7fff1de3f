"""A step's drafts with the target's logits, in parts of limited size: verification needs many tensors as large."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs
from vllm_spec_plugin.verification.topology import Topology


class VerificationBatch(NamedTuple):
    """Drafts of consecutive requests of a batch, and the target's logits at their rows.

    Attributes:
        requests: indices of the requests in the batch.
        num_draft_tokens: draft tokens of each request.
        draft_token_ids: [num_draft_tokens] int64, request by request.
        draft_probs: q of each draft token.
        logits: [num_draft_tokens + num_requests, vocab_size], request by request.
        trees: shape of each request's draft; None is chains.
        host_drafts: draft tokens of each request, if they are on the host.
    """

    requests: slice
    num_draft_tokens: Sequence[int]
    draft_token_ids: torch.Tensor
    draft_probs: DraftProbs
    logits: torch.Tensor
    trees: Sequence[Topology] | None = None
    host_drafts: Sequence[Sequence[int]] | None = None

    def parts(self, max_rows: int, *, is_padded: bool) -> Iterator["VerificationBatch"]:
        """Yields parts of at most `max_rows` rows, or of one request; a small batch as it is.

        Args:
            max_rows: maximum rows of a part.
            is_padded: whether all requests need as many rows as the longest draft, as for logprobs.
        """
        num_requests, longest = len(self.num_draft_tokens), 1 + max(self.num_draft_tokens, default=0)
        if (num_requests * longest if is_padded else len(self.logits)) <= max_rows:
            yield self
            return
        ends, count = [0, *itertools.accumulate(self.num_draft_tokens)], max(max_rows // longest, 1)
        for first in range(0, num_requests, count):
            last = min(first + count, num_requests)
            yield self._part(slice(first, last), slice(ends[first], ends[last]))

    def _part(self, requests: slice, drafts: slice) -> "VerificationBatch":
        q = self.draft_probs
        if isinstance(q, SparseProbs):
            q = SparseProbs(q.token_ids[drafts], q.probs[drafts])
        elif q is not None:
            q = q[drafts]
        return VerificationBatch(
            requests,
            self.num_draft_tokens[requests],
            self.draft_token_ids[drafts],
            q,
            self.logits[drafts.start + requests.start : drafts.stop + requests.stop],
            self.trees and self.trees[requests],
            self.host_drafts and self.host_drafts[requests],
        )
