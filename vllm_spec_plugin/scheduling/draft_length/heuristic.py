"""Draft lengths by the rule of assisted generation: longer after success, shorter after failure. Imports no vLLM."""

GROWTH, SHRINKAGE = 2, 1
START = 5


class HeuristicDraftLength:
    """A draft length per request that follows its last drafts and no cost.

    The rule is that of Hugging Face transformers (`AssistedCandidateGenerator.update_candidate_strategy` in
    src/transformers/generation/candidate_generator.py, `num_assistant_tokens_schedule="heuristic_transient"`):
    two tokens more if all were accepted, else one less, but at least 1. It started at 5, its default until
    pull request 33657 made a constant length the default. Three things differ: there is a most; each
    request has its own length; and a draft shorter than asked for counts only if a token of it was
    rejected, as where a proposer stops does not say how far it would have been right.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        """Gives every request `START` tokens, as far as the bounds allow.

        Args:
            most: longest draft.
            least: shortest draft. With 0 a request would never be drafted for again, so at least 1.

        Raises:
            ValueError: not 1 <= least <= most.
        """
        if not 1 <= least <= most:
            raise ValueError(f"least is {least} and most is {most}; it must be that 1 <= least <= most")
        self._most = most
        self._least = least
        self._start = min(max(START, least), most)
        self._length: dict[str, int] = {}

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Learns from one verified draft.

        Args:
            request_id: the draft's request.
            asked: tokens that the proposer was asked for.
            drafted: tokens that it gave.
            accepted: how many of them were kept, the first ones.
        """
        length = self.length(request_id)
        if accepted < drafted:
            self._length[request_id] = max(length - SHRINKAGE, self._least)
        elif 0 < asked <= drafted:
            self._length[request_id] = min(length + GROWTH, self._most)

    def length(self, request_id: str) -> int:
        """How many tokens to draft for a request, known or not."""
        return self._length.get(request_id, self._start)

    def forget(self, request_id: str) -> None:
        """Drops a request's length."""
        self._length.pop(request_id, None)
