"""What the draft computes first in a step: the text it has not seen. Imports no vLLM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.draft_model.coverage import DraftCoverage


@dataclass(frozen=True)
class Chunk:
    """A piece of one request's text for the draft to compute.

    Attributes:
        request: whose.
        start: position of its first token.
        stop: position after its last one.
        num_draft_tokens: how many drafts to make after it; 0 where the text goes on, or none are wanted.
    """

    request: RequestView
    start: int
    stop: int
    num_draft_tokens: int


@dataclass(frozen=True)
class Limits:
    """What bounds a step.

    Attributes:
        catch_up_tokens: most tokens of text computed in a step.
        max_len: the draft's context, in tokens.
    """

    catch_up_tokens: int
    max_len: int


def plan_catch_up(
    requests: Sequence[RequestView],
    coverage: DraftCoverage,
    block_table: Callable[[int], npt.NDArray[np.int32]],
    limits: Limits,
) -> list[Chunk]:
    """Chooses what of each request's text is computed in this step.

    Requests that want drafts come first, those with least to catch up before others, so that one long
    prompt does not stop the rest from drafting; what is left of the budget goes to prompts that are not
    through yet. A request drafts only if its whole text is computed. Two requests that share blocks
    which are computed in this step do not compute them twice.

    Args:
        requests: the step's.
        coverage: what has been computed.
        block_table: from a request's row to its blocks.
        limits: of the step.

    Returns:
        Chunks; those with drafts to make first, the longest drafts before shorter ones.
    """
    room = limits.catch_up_tokens
    soon: set[int] = set()
    chunks = []
    for request, num_draft_tokens, seen in _in_turn(requests, coverage, block_table, limits):
        blocks = block_table(request.row)
        stop = min(len(request.token_ids), request.num_slots, limits.max_len)
        start = coverage.watermark(request.request_id, request.token_ids, blocks, soon) if soon else seen
        if num_draft_tokens:
            # The last token's output is needed, computed or not.
            start = min(start, stop - 1)
        stop = min(stop, start + room)
        if stop <= start:
            continue
        room -= stop - start
        soon.update(coverage.blocks_filled(start, stop, blocks))
        chunks.append(Chunk(request, start, stop, num_draft_tokens if stop == len(request.token_ids) else 0))
    return sorted(chunks, key=lambda chunk: -chunk.num_draft_tokens)


def num_draft_tokens(request: RequestView, limits: Limits) -> int:
    """K, cut to the slots the request has and to the draft's context.

    The target verifies K drafts with slots for all of them; the draft itself computes all but the last.
    """
    length = len(request.token_ids)
    return max(min(request.num_draft_tokens, request.num_draft_slots, limits.max_len - length + 1), 0)


def _in_turn(
    requests: Sequence[RequestView],
    coverage: DraftCoverage,
    block_table: Callable[[int], npt.NDArray[np.int32]],
    limits: Limits,
) -> list[tuple[RequestView, int, int]]:
    """Requests with their K and their watermark."""
    drafting: list[tuple[RequestView, int, int]] = []
    waiting: list[tuple[RequestView, int, int]] = []
    for request in requests:
        count = num_draft_tokens(request, limits)
        if count or request.in_prompt:
            seen = coverage.watermark(request.request_id, request.token_ids, block_table(request.row))
            (drafting if count else waiting).append((request, count, seen))
    drafting.sort(key=lambda entry: len(entry[0].token_ids) - entry[2])
    return drafting + waiting
