"""The prediction proposer: one alignment per request that has a prediction."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.prediction.alignment import Alignment


class PredictionProposer:
    """Drafts the predicted tokens after the position that corresponds to the end of the output.

    Args:
        vocab_size: size of the vocabulary; only tokens below are drafted.

    Memory: about 17 bytes per predicted token of each request.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._alignments: dict[str, Alignment] = {}

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order; empty without a prediction."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's alignment; its next draft aligns the whole output again."""
        self._alignments.pop(request_id, None)

    def _draft(self, view: RequestView) -> Draft:
        if not view.prediction:
            return NO_DRAFT
        output, alignment = view.token_ids[view.num_prompt_tokens :], self._alignments.get(view.request_id)
        if alignment is None or alignment.num_tokens > len(output):
            alignment = self._alignments[view.request_id] = Alignment(view.prediction)
        alignment.advance(output[alignment.num_tokens :].tolist())
        token_ids = []
        for token in alignment.continuation(view.num_draft_tokens):
            if not 0 <= token < self._vocab_size:
                break
            token_ids.append(token)
        return Draft(token_ids) if token_ids else NO_DRAFT
