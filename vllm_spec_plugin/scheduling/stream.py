"""A step's tokens on their way to the frontend, in groups of one size whatever the steps gave."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from vllm_spec_plugin.compat.scheduler import StreamToken, merge_metadata, set_stream_tokens, stream_tokens

Token = TypeVar("Token")


class StreamGroups(Generic[Token]):
    """Holds each request's tokens back until they make a group.

    A token is whatever travels as one: its id, and with it its logprobs.

    Attributes:
        size: tokens of a group.
    """

    def __init__(self, size: int) -> None:
        """Holds nothing back yet.

        Args:
            size: at least 1. Where no step gives more, no more than one group is released at a time.
        """
        self.size = size
        self._held: dict[str, list[Token]] = {}

    def release(self, request_id: str, tokens: Sequence[Token], *, is_last: bool) -> list[Token]:
        """Takes a request's tokens of a step.

        Args:
            request_id: whose.
            tokens: in order; maybe none.
            is_last: whether the request ends with them.

        Returns:
            What is to leave now, in order: whole groups, maybe none; all there is if it is the last of the request.
        """
        waiting = [*self._held.pop(request_id, ()), *tokens]
        count = len(waiting) if is_last else len(waiting) // self.size * self.size
        if count < len(waiting):
            self._held[request_id] = waiting[count:]
        return waiting[:count]

    def drop(self, request_id: str) -> None:
        """Forgets what is held back of a request that nobody waits for any more."""
        self._held.pop(request_id, None)


class GroupedStream:
    """Lets tokens go in groups of one size, so that the size of what a client gets does not tell how drafts fared.

    What vLLM says beside a request's tokens (events, prefill statistics, prompt logprobs) goes with its first
    group: an output without tokens before that would cost streaming clients the prompt's token ids, which vLLM's
    frontend takes to be sent with it, and leaves out.
    """

    def __init__(self, size: int) -> None:
        """Holds nothing back yet.

        Args:
            size: tokens of a group, at least what a step may give.
        """
        self._groups: StreamGroups[StreamToken] = StreamGroups(size)
        # The output that was left out last, per request, with what those before it said.
        self._unsaid: dict[str, Any] = {}

    def regroup(self, outputs: Mapping[int, Any]) -> None:
        """Moves tokens between the outputs of this step and later ones.

        Args:
            outputs: vLLM's `EngineCoreOutputs` by client, changed in place. Those of requests that end carry all that
                was held back. Those left without tokens are taken out.
        """
        for answer in outputs.values():
            answer.outputs = [output for output in answer.outputs if self._leaves(output)]

    def drop(self, request_id: str) -> None:
        """Forgets what is held back of a request that was aborted: no output of it will follow."""
        self._groups.drop(request_id)
        self._unsaid.pop(request_id, None)

    def _leaves(self, output: Any) -> bool:
        request_id = output.request_id
        tokens = self._groups.release(request_id, stream_tokens(output), is_last=output.finished)
        set_stream_tokens(output, tokens)
        if (earlier := self._unsaid.pop(request_id, None)) is not None:
            merge_metadata(output, earlier)
        leaves = bool(tokens) or output.finished
        if not leaves:
            self._unsaid[request_id] = output
        return leaves
