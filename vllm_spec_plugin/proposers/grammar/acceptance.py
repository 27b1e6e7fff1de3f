"""Estimates how often drafted tokens are accepted, by their kind."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.grammar.state import Kind

# Acceptance before any outcome, by kind, and the outcomes that it weighs as much as.
_PRIOR, _PRIOR_OUTCOMES = (1.0, 0.8, 0.65), 4.0
# Outcomes of a request that weigh as much as those of all requests.
_OWN_OUTCOMES = 2.0
# What is kept of earlier outcomes after a further one, of all requests and of one; and of both after a draft that ended
# before such a token, so that the kind is tried again.
_KEPT, _KEPT_OWN, _KEPT_AT_REST = 0.98, 0.9, 0.98


class KindAcceptance:
    """Estimates the probability that a token is accepted if all before it are, by kind and request.

    A request's estimate is the mean of its own outcomes and the estimate for all requests, which begins with a guess.
    Forced tokens are always accepted.
    """

    def __init__(self) -> None:
        """Starts without outcomes."""
        # By kind, accepted tokens and all of them, each with its weight.
        self._all = [[0.0, 0.0] for _ in Kind]
        self._own: dict[str, list[list[float]]] = {}

    def of(self, request_id: str, kind: int) -> float:
        """Returns the probability that a request's token of a kind is accepted."""
        if kind == Kind.FORCED:
            return 1.0
        accepted, seen = self._all[kind]
        estimate = (accepted + _PRIOR[kind] * _PRIOR_OUTCOMES) / (seen + _PRIOR_OUTCOMES)
        if (own := self._own.get(request_id)) is None:
            return estimate
        accepted, seen = own[kind]
        return (accepted + estimate * _OWN_OUTCOMES) / (seen + _OWN_OUTCOMES)

    def num_worth(self, request_id: str, kinds: Sequence[int], least: float, reached: float = 1.0) -> int:
        """Returns the number of a draft's first tokens that are worth their verification.

        Args:
            request_id: the request.
            kinds: kind of each token.
            least: minimum probability that a token and all before it are accepted.
            reached: probability that all tokens before these are accepted.
        """
        for i, kind in enumerate(kinds):
            reached *= self.of(request_id, kind)
            if reached < least:
                for counts in self._counts(request_id, kind):
                    counts[0] *= _KEPT_AT_REST
                    counts[1] *= _KEPT_AT_REST
                return i
        return len(kinds)

    def verified(self, request_id: str, kinds: Sequence[int], accepted: int) -> None:
        """Learns from a verified draft.

        Args:
            request_id: the request.
            kinds: kind of each verified token.
            accepted: number of accepted ones.
        """
        for i, kind in enumerate(kinds[: accepted + 1]):
            for counts, kept in zip(self._counts(request_id, kind), (_KEPT, _KEPT_OWN), strict=True):
                counts[0] = counts[0] * kept + (i < accepted)
                counts[1] = counts[1] * kept + 1

    def forget(self, request_id: str) -> None:
        """Drops a request's own outcomes."""
        self._own.pop(request_id, None)

    def _counts(self, request_id: str, kind: int) -> tuple[list[float], list[float]]:
        own = self._own.get(request_id)
        if own is None:
            own = self._own[request_id] = [[0.0, 0.0] for _ in Kind]
        return self._all[kind], own[kind]
