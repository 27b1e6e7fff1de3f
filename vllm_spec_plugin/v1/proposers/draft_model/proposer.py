"""Drafts with a small model: Leviathan et al. (2023), Algorithm 1, lines 1-4, over a ragged batch."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import CatchUpLimits, TextChunk, plan_catch_up
from vllm_spec_plugin.v1.proposers.draft_model.chain_drafts import GrowingDrafts
from vllm_spec_plugin.v1.proposers.draft_model.engine import DraftEngine


class DraftModelProposer:
    """Drafts with a small model.

    One pass computes the missing tokens of each text, usually the one or two since the last step. Then one pass per
    further draft token computes the requests with longer drafts. A request with K draft tokens takes part in K passes.

    With any sampled request among n, q takes n * K * vocab_size * 4 bytes until it is verified; with greedy ones only,
    nothing.
    """

    def __init__(self, engine: DraftEngine, samples: bool, catch_up_tokens: int) -> None:
        """Takes the model's engine.

        Args:
            engine: runs the model.
            samples: whether drafts of sampled requests are sampled; otherwise they are the most likely tokens.
            catch_up_tokens: maximum tokens of text computed in a step.
        """
        self._engine = engine
        self._samples = samples
        self._limits = CatchUpLimits(catch_up_tokens, engine.max_len)

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request; empty if K, memory or the draft model's context allow none."""
        coverage = self._engine.coverage
        chunks = plan_catch_up(requests, coverage, self._engine.block_tables, self._limits)
        if not chunks:
            return [NO_DRAFT] * len(requests)
        drafts = self._draft(chunks)
        drafts += [(NO_DRAFT, [])] * (len(chunks) - len(drafts))
        answer = {}
        for chunk, (draft, draft_tokens_in_kv) in zip(chunks, drafts, strict=True):
            request_id = chunk.request.request_id
            answer[request_id] = draft
            coverage.computed(request_id, chunk.start, chunk.stop, chunk.tables, draft_tokens_in_kv)
        return [answer.get(request.request_id, NO_DRAFT) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's computed tokens."""
        self._engine.coverage.forget(request_id)

    def reset(self) -> None:
        """Drops all computed tokens and blocks."""
        self._engine.coverage.reset()

    def _draft(self, chunks: list[TextChunk]) -> list[tuple[Draft, list[int]]]:
        """Returns for each chunk with drafts its draft, and the draft tokens that the model has computed."""
        engine = self._engine
        lengths = [chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens]
        logits = engine.start(chunks, max(lengths, default=1) - 1)
        if not lengths:
            return []
        requests = [chunk.request for chunk in chunks[: len(lengths)]]
        batch = GrowingDrafts(requests, lengths, self._samples, logits.device)
        while True:
            batch.grow(engine.constrain(logits, batch.rows, batch.tokens))
            if not batch.lengths:
                return batch.finish()
            logits = engine.step(batch.last)
