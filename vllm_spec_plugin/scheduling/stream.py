"""Sends tokens to the frontend one by one or in groups of one size, independent of the tokens per step."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from vllm_spec_plugin.compat.scheduler import (
    EngineCoreOutput,
    EngineCoreOutputs,
    StreamToken,
    merge_metadata,
    set_stream_tokens,
    split_by_token,
    stream_tokens,
)

Token = TypeVar("Token")


class StreamGroups(Generic[Token]):
    """Holds each request's tokens back until they make a group.

    A token here is its id with its logprobs.

    Attributes:
        size: number of tokens per group.
    """

    def __init__(self, size: int) -> None:
        """Holds nothing back yet.

        Args:
            size: tokens per group, at least 1. If no step outputs more, at most one group is released at a time.
        """
        self.size = size
        self._held: dict[str, list[Token]] = {}

    def release(self, request_id: str, tokens: Sequence[Token], *, is_last: bool) -> list[Token]:
        """Adds a request's tokens of a step, and releases complete groups.

        Args:
            request_id: id of the request.
            tokens: tokens in order; possibly none.
            is_last: whether the request ends with them.

        Returns:
            Tokens to send now, in order: complete groups, possibly none; all tokens if the request ends.
        """
        waiting = [*self._held.pop(request_id, ()), *tokens]
        count = len(waiting) if is_last else len(waiting) // self.size * self.size
        if count < len(waiting):
            self._held[request_id] = waiting[count:]
        return waiting[:count]

    def drop(self, request_id: str) -> None:
        """Drops held tokens of an aborted request."""
        self._held.pop(request_id, None)


class SingleTokens:
    """Sends a step's tokens one by one: parsers of tool calls and reasoning get the same chunks as without drafts."""

    def regroup(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        """Splits the outputs of a step.

        Args:
            outputs: vLLM's `EngineCoreOutputs` by client, changed in place.
        """
        for answer in outputs.values():
            answer.outputs = [part for output in answer.outputs for part in split_by_token(output)]

    def drop(self, request_id: str) -> None:
        """Holds no tokens back."""


class GroupedStream:
    """Releases tokens in groups of one size, so that chunk sizes do not reveal acceptance.

    Metadata of a request (events, prefill statistics, prompt logprobs) is sent with its first group: after an earlier
    output without tokens vLLM's frontend would omit the prompt's token ids for streaming clients.
    """

    def __init__(self, size: int) -> None:
        """Holds nothing back yet.

        Args:
            size: tokens per group, at least the maximum output of a step.
        """
        self._groups: StreamGroups[StreamToken] = StreamGroups(size)
        # The latest output that was left out, per request, merged with those before it.
        self._held: dict[str, EngineCoreOutput] = {}

    def regroup(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        """Moves tokens between the outputs of this step and later ones.

        Args:
            outputs: vLLM's `EngineCoreOutputs` by client, changed in place. Outputs of finished requests have all held
                tokens. Outputs without tokens are removed.
        """
        for answer in outputs.values():
            answer.outputs = [output for output in answer.outputs if self._leaves(output)]

    def drop(self, request_id: str) -> None:
        """Drops held tokens of an aborted request, which gets no more output."""
        self._groups.drop(request_id)
        self._held.pop(request_id, None)

    def _leaves(self, output: EngineCoreOutput) -> bool:
        request_id = output.request_id
        tokens = self._groups.release(request_id, stream_tokens(output), is_last=output.finished)
        set_stream_tokens(output, tokens)
        if (earlier := self._held.pop(request_id, None)) is not None:
            merge_metadata(output, earlier)
        leaves = bool(tokens) or output.finished
        if not leaves:
            self._held[request_id] = output
        return leaves
