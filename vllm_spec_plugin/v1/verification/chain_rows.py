"""Lays out the rows of the target's output in a step that verifies chains."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch


@dataclass(frozen=True)
class Rows:
    """The layout of one verification step.

    Request i with K_i draft tokens has K_i + 1 consecutive rows of the target's logits: row j verifies draft token j,
    the last one gives the bonus token.

    Attributes:
        request: [num_rows] int64, index of each row's request.
        offset: [num_rows] int64, number of its request's draft tokens before each row.
        first: [batch_size] int64, each request's first row.
        num_draft_tokens: [batch_size] int64, K.
        draft_row: [num_draft_tokens] int64, row that verifies each draft token.
        draft_start: [batch_size] int64, index of each request's first draft token.
        later_drafts: [n] int64, indices of all draft tokens but each request's first.
        width: maximum rows of a request, max K + 1; of a part of a step, that of the whole step.
    """

    request: torch.Tensor
    offset: torch.Tensor
    first: torch.Tensor
    num_draft_tokens: torch.Tensor
    draft_row: torch.Tensor
    draft_start: torch.Tensor
    later_drafts: torch.Tensor
    width: int

    @classmethod
    def of(cls, num_draft_tokens: Sequence[int], device: torch.device) -> "Rows":
        """Returns the layout for these numbers of draft tokens per request; read-only, as it is cached."""
        return _layout(tuple(num_draft_tokens), device)

    def with_width(self, width: int) -> Self:
        """Returns the layout with a larger width, for a part of a step."""
        return self if width == self.width else replace(self, width=width)

    @functools.cached_property
    def draft_request(self) -> torch.Tensor:
        """[num_draft_tokens] int64, index of each draft token's request."""
        return self.request[self.draft_row]

    @functools.cached_property
    def draft_offset(self) -> torch.Tensor:
        """[num_draft_tokens] int64, number of its request's draft tokens before each draft token."""
        return self.offset[self.draft_row]

    @functools.cached_property
    def draft_first(self) -> torch.Tensor:
        """[num_draft_tokens] int64, first row of each draft token's request."""
        return self.first[self.draft_request]

    @functools.cached_property
    def columns(self) -> torch.Tensor:
        """[width - 1] int64, positions in a draft: 0, 1, 2, ..."""
        return torch.arange(self.width - 1, device=self.request.device)

    def context(self, draft_token_ids: torch.Tensor) -> torch.Tensor:
        """Returns [num_rows, width - 1] int64, its request's draft tokens before each row, padded with -1.

        Args:
            draft_token_ids: [num_draft_tokens] int64, negative for no token.
        """
        drafts = draft_token_ids.new_full((len(self.first), self.width), -1)
        drafts[self.draft_request, self.draft_offset] = draft_token_ids
        columns = torch.arange(self.width - 1, device=drafts.device)
        return drafts[self.request, :-1].masked_fill_(columns >= self.offset[:, None], -1)


# Most steps have the same draft lengths as one of the last few.
@functools.lru_cache(maxsize=64)
def _layout(num_draft_tokens: tuple[int, ...], device: torch.device) -> Rows:
    counts = np.array(num_draft_tokens, dtype=np.int64)
    requests = np.arange(len(counts))
    first = (counts + 1).cumsum() - counts - 1
    request = requests.repeat(counts + 1)
    draft_request = requests.repeat(counts)
    offset = np.arange(len(request)) - first[request]
    draft_row = np.arange(len(draft_request)) + draft_request
    parts = (request, offset, first, counts, draft_row, counts.cumsum() - counts, offset[draft_row].nonzero()[0])
    # One transfer for all.
    packed = torch.from_numpy(np.concatenate(parts)).to(device, non_blocking=True)
    tensors = torch.split(packed, [len(part) for part in parts])
    names = ("request", "offset", "first", "num_draft_tokens", "draft_row", "draft_start", "later_drafts")
    return Rows(**dict(zip(names, tensors, strict=True)), width=max(num_draft_tokens, default=0) + 1)
