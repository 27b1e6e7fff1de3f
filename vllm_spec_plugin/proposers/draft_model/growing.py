"""Drafts chains token by token, in torch alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.draw import confidence, draw, most_likely


@dataclass(frozen=True)
class DraftSettings:
    """Settings of a draft model's section.

    Attributes:
        draft_sampling: probabilistic samples from q; greedy takes the most likely token.
        draft_temperature: temperature of q for sampled requests; None is each request's own.
        min_confidence: probability of a token below which a draft ends before it.
        catch_up_tokens: maximum tokens of text computed in a step.
        branches: children of each node of a tree, by depth; empty is chains.
        by_confidence: whether a tree's nodes are chosen by the model's probabilities, not by `branches` alone.
    """

    draft_sampling: Literal["probabilistic", "greedy"] = "probabilistic"
    draft_temperature: float | None = None
    min_confidence: float = 0.0
    catch_up_tokens: int = 2048
    branches: tuple[int, ...] = ()
    by_confidence: bool = False


class GrowingDrafts:
    """Chooses the tokens of drafts in the order of falling length, and drops complete ones from the end.

    Attributes:
        lengths: K of each incomplete draft, descending.
        rows: [n] int64, rows of the batch of incomplete drafts.
        last: [n] int64, newest tokens of incomplete drafts.
    """

    last: torch.Tensor

    def __init__(
        self, requests: Sequence[RequestView], lengths: Sequence[int], settings: DraftSettings, device: torch.device
    ) -> None:
        """Starts without draft tokens.

        Args:
            requests: requests to draft for.
            lengths: K of each request, descending, at least 1.
            settings: the draft model's settings.
            device: device of the logits.
        """
        self._settings = settings
        self._is_certain = [request.point_mass or settings.draft_sampling == "greedy" for request in requests]
        self._all_certain = all(self._is_certain)
        self._position = 0
        # [positions, requests], negative for no token, or one that is not drafted after all.
        self._tokens = torch.full((lengths[0], len(requests)), -1, device=device)
        # Indices of incomplete drafts; None is the first `len(lengths)`.
        self._indices: torch.Tensor | None = None
        self._q: torch.Tensor | None = None
        self.lengths = list(lengths)
        self.rows = torch.tensor([request.row for request in requests], device=device)
        if not self._all_certain:
            uniforms = np.zeros((len(requests), lengths[0]))
            for row, request, length in zip(uniforms, requests, lengths, strict=True):
                row[:length] = request.uniforms[:length]
            self._uniforms = torch.from_numpy(uniforms).to(device)
            self._certain = torch.tensor(self._is_certain, device=device)

    @property
    def tokens(self) -> torch.Tensor:
        """[n, tokens so far] int64, tokens of incomplete drafts."""
        return self._tokens[: self._position, self._growing].T

    def grow(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Chooses the next token of each.

        Args:
            logits: [n, vocab_size], after the requests' sampling pipelines.

        Returns:
            [m] int64, ascending indices of the drafts that are confident enough to continue, complete ones included;
            None without a confidence limit.
        """
        position = self._position
        if self._all_certain:
            tokens = most_likely(logits)
        else:
            tokens = draw(self._softmax(logits, position), self._uniforms[:, position])
            if any(self._is_certain):
                tokens = torch.where(self._certain, most_likely(logits), tokens)
        sure, drafted = None, tokens
        if self._settings.min_confidence:
            unsure = confidence(logits, tokens) < self._settings.min_confidence
            # A sampled token stays: dropping it because of its value would change the output's distribution.
            drafted = tokens.masked_fill(unsure if self._all_certain else unsure & self._certain, -1)
            sure = (~unsure).nonzero().squeeze(1)
        self._tokens[position, self._growing] = drafted
        self._position, self.last = position + 1, tokens
        if sure is not None:
            self._keep(sure)
        if self.lengths and self.lengths[-1] == self._position:
            self._keep(slice(sum(length > self._position for length in self.lengths)))
        return sure

    def finish(self) -> list[tuple[Draft, list[int]]]:
        """Returns each request's draft, and its tokens that the model has computed: all but the last."""
        result = []
        for i, column in enumerate(self._tokens.T.tolist()):
            drafted = [token for token in column if token >= 0]
            q = None if self._q is None or self._is_certain[i] else self._q[i, : len(drafted)]
            result.append((Draft(drafted, q), drafted[:-1]))
        return result

    @property
    def _growing(self) -> torch.Tensor | slice:
        return slice(len(self.lengths)) if self._indices is None else self._indices

    def _softmax(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """Returns [n, vocab_size], softmax of `logits`, kept as q of the position."""
        if self._q is None:
            self._q = logits.new_empty(len(self._is_certain), self.lengths[0], logits.shape[-1])
        if self._indices is None:
            return torch.softmax(logits, -1, out=self._q[: len(logits), position])
        probs = logits.softmax(-1)
        self._q[self._indices, position] = probs
        return probs

    def _keep(self, chosen: torch.Tensor | slice) -> None:
        if isinstance(chosen, slice):
            self.lengths = self.lengths[chosen]
        else:
            self.lengths = [self.lengths[i] for i in chosen.tolist()]
            if self._indices is None:
                self._indices = torch.arange(len(self.rows), device=self.rows.device)
        if self._indices is not None:
            self._indices = self._indices[chosen]
        self.rows, self.last = self.rows[chosen], self.last[chosen]
        if not self._all_certain:
            self._uniforms, self._certain = self._uniforms[chosen], self._certain[chosen]
