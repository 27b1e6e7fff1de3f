"""Chooses the tokens of texts that the draft model computes first in a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.proposers.draft_model.coverage import BlockTables, DraftCoverage


class TextChunk(NamedTuple):
    """A part of one request's text for the draft model to compute.

    Attributes:
        request: view of the request.
        start: position of its first token.
        stop: position after its last token.
        num_draft_tokens: number of tokens to draft after it; 0 if more text follows, or no draft is planned.
        tables: the request's block tables.
    """

    request: RequestView
    start: int
    stop: int
    num_draft_tokens: int
    tables: BlockTables = ()


@dataclass(frozen=True)
class CatchUpLimits:
    """Limits of a step.

    Attributes:
        catch_up_tokens: maximum tokens of text computed in a step.
        max_len: the draft model's context length, in tokens.
    """

    catch_up_tokens: int
    max_len: int


def plan_catch_up(
    requests: Sequence[RequestView],
    coverage: DraftCoverage,
    block_tables: Callable[[int], BlockTables],
    limits: CatchUpLimits,
) -> list[TextChunk]:
    """Chooses the tokens of each request's text that this step computes.

    Requests with planned drafts come first, those with the fewest missing tokens before others, so that one long
    prompt does not keep the rest from drafting. The remaining budget goes to requests in prefill. A request drafts only
    if its whole text is computed. Blocks that two requests share are computed once.

    Args:
        requests: views of the step's requests.
        coverage: positions that are computed.
        block_tables: returns the block tables of a row of the batch.
        limits: limits of the step.

    Returns:
        Chunks, those with drafts first, in the order of falling draft length.
    """
    room = limits.catch_up_tokens
    completing_now: set[int] = set()
    chunks = []
    for request, num_draft_tokens, seen, tables in _in_turn(requests, coverage, block_tables, limits):
        length = len(request.token_ids)
        stop = min(length, request.num_slots, limits.max_len)
        start = (
            coverage.watermark(request.request_id, request.token_ids, tables, completing_now)
            if completing_now
            else seen
        )
        if num_draft_tokens:
            # The last token's output is needed, computed or not.
            start = min(start, stop - 1)
        stop = min(stop, start + room)
        if stop <= start:
            continue
        room -= stop - start
        completing_now.update(coverage.blocks_filled(start, stop, tables))
        chunks.append(TextChunk(request, start, stop, num_draft_tokens if stop == length else 0, tables))
    chunks.sort(key=_num_draft_tokens, reverse=True)
    return chunks


def num_draft_tokens(request: RequestView, limits: CatchUpLimits) -> int:
    """Returns K, limited by the request's slots and the draft model's context.

    The target needs slots for all K draft tokens; the draft model computes all but the last.
    """
    length = len(request.token_ids)
    return max(min(request.num_draft_tokens, request.num_slots - length, limits.max_len - length + 1), 0)


def _in_turn(
    requests: Sequence[RequestView],
    coverage: DraftCoverage,
    block_tables: Callable[[int], BlockTables],
    limits: CatchUpLimits,
) -> list[tuple[RequestView, int, int, BlockTables]]:
    """Returns requests with their K, computed tokens and block tables, in the order of the budget."""
    drafting: list[tuple[RequestView, int, int, BlockTables]] = []
    waiting: list[tuple[RequestView, int, int, BlockTables]] = []
    for request in requests:
        count = num_draft_tokens(request, limits)
        if count or request.in_prompt:
            tables = block_tables(request.row)
            seen = coverage.watermark(request.request_id, request.token_ids, tables)
            (drafting if count else waiting).append((request, count, seen, tables))
    drafting.sort(key=_num_uncomputed_tokens)
    return drafting + waiting


def _num_uncomputed_tokens(entry: tuple[RequestView, int, int, BlockTables]) -> int:
    request, _, seen, _ = entry
    return len(request.token_ids) - seen


_num_draft_tokens = attrgetter("num_draft_tokens")
