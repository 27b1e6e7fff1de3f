"""Drafts chains token by token, in torch alone."""

from collections.abc import Sequence

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.draft_tokens import draw, most_likely


class GrowingDrafts:
    """Chooses the tokens of drafts in the order of falling length, and drops complete ones from the end.

    Attributes:
        lengths: K of each incomplete draft, descending.
        rows: [n] int64, rows of the batch of incomplete drafts.
        last: [n] int64, newest tokens of incomplete drafts.
    """

    last: torch.Tensor

    def __init__(
        self, requests: Sequence[RequestView], lengths: Sequence[int], samples: bool, device: torch.device
    ) -> None:
        """Starts without draft tokens.

        Args:
            requests: requests to draft for.
            lengths: K of each request, descending, at least 1.
            samples: whether drafts of sampled requests are sampled.
            device: device of the logits.
        """
        self.lengths = list(lengths)
        self.rows = torch.tensor([request.row for request in requests], device=device)
        self._all_lengths = tuple(lengths)
        self._is_certain = [request.point_mass or not samples for request in requests]
        self._all_certain = all(self._is_certain)
        self._position = 0
        # [positions, requests].
        self._tokens = torch.zeros((lengths[0], len(requests)), dtype=torch.int64, device=device)
        self._q: torch.Tensor | None = None
        if not self._all_certain:
            uniforms = np.zeros((len(requests), lengths[0]))
            for row, request, length in zip(uniforms, requests, lengths, strict=True):
                row[:length] = request.uniforms[:length]
            self._uniforms = torch.from_numpy(uniforms).to(device)
            self._certain = torch.tensor(self._is_certain, device=device)

    @property
    def tokens(self) -> torch.Tensor:
        """[n, tokens so far] int64, tokens of incomplete drafts."""
        return self._tokens[: self._position, : len(self.lengths)].T

    def grow(self, logits: torch.Tensor) -> None:
        """Chooses the next token of each incomplete draft.

        Args:
            logits: [n, vocab_size], after the requests' sampling pipelines.
        """
        n, position = len(logits), self._position
        if self._all_certain:
            tokens = most_likely(logits)
        else:
            tokens = draw(self._softmax(logits), self._uniforms[:n, position])
            if any(self._is_certain):
                tokens = torch.where(self._certain[:n], most_likely(logits), tokens)
        self._tokens[position, :n] = tokens
        self._position += 1
        if self.lengths[-1] == self._position:
            self.lengths = [length for length in self.lengths if length > self._position]
        left = len(self.lengths)
        self.rows, self.last = self.rows[:left], tokens[:left]

    def finish(self) -> list[tuple[Draft, list[int]]]:
        """Returns each request's draft, and its tokens that the model has computed: all but the last."""
        result = []
        for i, (column, length) in enumerate(zip(self._tokens.T.tolist(), self._all_lengths, strict=True)):
            drafted = column[:length]
            q = None if self._q is None or self._is_certain[i] else self._q[i, :length]
            result.append((Draft(drafted, q), drafted[:-1]))
        return result

    def _softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns [n, vocab_size], softmax of `logits`, kept as q of the position."""
        if self._q is None:
            self._q = logits.new_empty(len(self._is_certain), len(self._tokens), logits.shape[-1])
        return torch.softmax(logits, -1, out=self._q[: len(logits), self._position])
