"""Drafting with a small model: Leviathan et al. (2023), Algorithm 1, lines 1-4, over a ragged batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk, Limits, plan_catch_up
from vllm_spec_plugin.proposers.draft_model.draw import confidence, draw
from vllm_spec_plugin.proposers.draft_model.engine import DraftEngine

NO_TOKEN = -1


@dataclass(frozen=True)
class DraftSettings:
    """How drafts are made.

    Attributes:
        draft_sampling: probabilistic draws from q; greedy takes the likeliest token.
        draft_temperature: of q for sampled requests, in place of their own; None keeps theirs.
        min_confidence: a request's draft ends where the draft gives its own token less probability.
        catch_up_tokens: most tokens of text computed in a step.
    """

    draft_sampling: Literal["probabilistic", "greedy"] = "probabilistic"
    draft_temperature: float | None = None
    min_confidence: float = 0.0
    catch_up_tokens: int = 2048


class DraftModelProposer:
    """Asks a small model what comes next.

    One pass computes what the draft has not seen of each text, usually the one or two tokens since the
    last step; then one pass per further draft token, over the requests whose K is not reached. A request
    for K drafts takes part in K passes.

    q is kept for sampled requests only: n * K * vocab_size * 4 bytes for n of them, until verified.
    """

    def __init__(self, engine: DraftEngine, settings: DraftSettings) -> None:
        """Takes the model and how to use it."""
        self._engine = engine
        self._settings = settings

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request; empty where K, memory or the draft's context leave none."""
        coverage = self._engine.coverage
        limits = Limits(self._settings.catch_up_tokens, self._engine.max_len)
        chunks = plan_catch_up(requests, coverage, self._engine.block_table, limits)
        if not chunks:
            return [NO_DRAFT] * len(requests)
        drafts = self._draft(chunks)
        answer = {}
        for i, chunk in enumerate(chunks):
            draft, fed = drafts[i] if i < len(drafts) else (NO_DRAFT, [])
            answer[chunk.request.request_id] = draft
            blocks = self._engine.block_table(chunk.request.row)
            coverage.computed(chunk.request.request_id, chunk.start, chunk.stop, blocks, fed)
        return [answer.get(request.request_id, NO_DRAFT) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark."""
        self._engine.coverage.forget(request_id)

    def _draft(self, chunks: list[Chunk]) -> list[tuple[Draft, list[int]]]:
        """Per chunk that wants drafts: its draft, and which of its tokens the draft model has been fed."""
        engine = self._engine
        lengths = [chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens]
        states = engine.start(chunks, max(lengths, default=0) - 1)
        if not lengths:
            return []
        batch = _Batch(chunks[: len(lengths)], self._settings, states.device)
        for place in range(lengths[0]):
            # Longer drafts come first: those that go on are at the front.
            going_on = sum(length > place for length in lengths)
            logits = engine.logits(states[:going_on])
            active = batch.active[:going_on]
            context = batch.tokens[active, :place]
            logits = engine.constrain(logits, batch.rows[active], context, self._settings.draft_temperature)
            unsure = batch.choose(logits, active, place)
            if unsure is not None:
                sure = (~unsure).nonzero().squeeze(1)
                lengths = [lengths[i] for i in sure.tolist()]
                batch.active = active[sure]
                engine.keep(sure)
            still = sum(length > place + 1 for length in lengths)
            if not still:
                break
            batch.fed[batch.active[:still]] += 1
            states = engine.step(batch.tokens[batch.active[:still], place])
        return batch.drafts()


class _Batch:
    """The drafts of a step while they grow.

    Attributes:
        rows: [n] int64, places of the requests in the batch.
        tokens: [n, K] int64, `NO_TOKEN` where there is none.
        active: indices of those that go on.
        fed: [n] int64, how many tokens of each draft were fed to the model.
    """

    def __init__(self, chunks: list[Chunk], settings: DraftSettings, device: torch.device) -> None:
        self._settings = settings
        requests = [chunk.request for chunk in chunks]
        most = chunks[0].num_draft_tokens
        certain = [request.point_mass or settings.draft_sampling == "greedy" for request in requests]
        self._certain, self._all_certain = certain, all(certain)
        self.rows = torch.tensor([request.row for request in requests], device=device)
        self.tokens = torch.full((len(requests), most), NO_TOKEN, device=device)
        self.active = torch.arange(len(requests), device=device)
        self.fed = torch.zeros(len(requests), dtype=torch.int64, device=device)
        self._is_certain = torch.tensor(certain, device=device)
        self._probs: torch.Tensor | None = None
        if not self._all_certain:
            uniforms = np.zeros((len(requests), most))
            for row, request in zip(uniforms, requests, strict=True):
                row[: len(request.uniforms)] = request.uniforms[:most]
            self._uniforms = torch.from_numpy(uniforms).to(device)

    def choose(self, logits: torch.Tensor, active: torch.Tensor, place: int) -> torch.Tensor | None:
        """Chooses the token at `place` for the requests at `active`.

        Returns:
            [len(active)] bool, whose drafts end here for want of confidence; None where nobody asks.
        """
        if self._all_certain:
            tokens = logits.argmax(-1)
        else:
            probs = logits.softmax(-1)
            if self._probs is None:
                self._probs = probs.new_empty(*self.tokens.shape, probs.shape[-1])
            self._probs[active, place] = probs
            drawn = draw(probs, self._uniforms[active, place])
            tokens = torch.where(self._is_certain[active], logits.argmax(-1), drawn)
        unsure = None
        if self._settings.min_confidence:
            unsure = confidence(logits, tokens) < self._settings.min_confidence
            # A drawn token stays: to drop it for its value would change the output's distribution.
            tokens = tokens.masked_fill(unsure & self._is_certain[active], NO_TOKEN)
        self.tokens[active, place] = tokens
        return unsure

    def drafts(self) -> list[tuple[Draft, list[int]]]:
        """What came of it, per request: its draft, and the part of it that was fed."""
        result = []
        for i, (tokens, fed) in enumerate(zip(self.tokens.tolist(), self.fed.tolist(), strict=True)):
            drafted = [token for token in tokens if token != NO_TOKEN]
            probs = None if self._certain[i] or self._probs is None else self._probs[i, : len(drafted)]
            result.append((Draft(drafted, probs), drafted[:fed]))
        return result
