"""Text tokens that the proposer with a KV cache of its own has not computed."""

from collections.abc import Container

from vllm_spec_plugin.compat.scheduler import SchedulerOutput


class UncomputedTokens:
    """Counts, per request, the text tokens that the proposer with KV has computed.

    Attributes:
        proposer: index of that proposer; None if no proposer keeps KV.
    """

    def __init__(self, proposer: int | None, num_proposers: int) -> None:
        self.proposer = proposer
        self._num_proposers = num_proposers
        self._nothing = (0,) * num_proposers
        self._computed: dict[str, int] = {}

    def admit(self, output: SchedulerOutput, served: Container[str]) -> None:
        """Notes how much of admitted texts the prefix cache had: the proposer's part of it is there too.

        Args:
            output: vLLM's `SchedulerOutput`.
            served: requests that may have drafts.
        """
        for request_id in output.preempted_req_ids or ():
            self._computed.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            if new.req_id in served:
                self._computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for request_id in cached.resumed_req_ids:
            if request_id in served:
                self._computed[request_id] = cached.num_computed_tokens[cached.req_ids.index(request_id)]

    def of(self, request_id: str, num_tokens: int) -> tuple[int, ...]:
        """Returns, per proposer, the tokens that it lacks of a text of `num_tokens` tokens."""
        missing = num_tokens - self._computed.get(request_id, 0)
        if missing <= 0:
            return self._nothing
        return tuple([missing if i == self.proposer else 0 for i in range(self._num_proposers)])

    def computed(self, request_id: str, num_tokens: int) -> None:
        """Notes that the proposer has computed the whole text of `num_tokens` tokens."""
        self._computed[request_id] = num_tokens

    def forget(self, request_id: str) -> None:
        """Drops the state of a finished request."""
        self._computed.pop(request_id, None)
