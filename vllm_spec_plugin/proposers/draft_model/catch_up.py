"""What the draft computes first in a step: the text it has not seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.draft_model.coverage import BlockTables, DraftCoverage


class Chunk(NamedTuple):
    """A piece of one request's text for the draft to compute.

    Attributes:
        request: whose.
        start: position of its first token.
        stop: position after its last one.
        num_draft_tokens: how many drafts to make after it; 0 where the text goes on, or none are wanted.
        tables: the request's block tables.
    """

    request: RequestView
    start: int
    stop: int
    num_draft_tokens: int
    tables: BlockTables = ()


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
    block_tables: Callable[[int], BlockTables],
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
        block_tables: from a request's row to its blocks.
        limits: of the step.

    Returns:
        Chunks; those with drafts to make first, the longest drafts before shorter ones.
    """
    room = limits.catch_up_tokens
    soon: set[int] = set()
    chunks = []
    for request, num_draft_tokens, seen, tables in _in_turn(requests, coverage, block_tables, limits):
        length = len(request.token_ids)
        stop = min(length, request.num_slots, limits.max_len)
        start = coverage.watermark(request.request_id, request.token_ids, tables, soon) if soon else seen
        if num_draft_tokens:
            # The last token's output is needed, computed or not.
            start = min(start, stop - 1)
        stop = min(stop, start + room)
        if stop <= start:
            continue
        room -= stop - start
        soon.update(coverage.blocks_filled(start, stop, tables))
        chunks.append(Chunk(request, start, stop, num_draft_tokens if stop == length else 0, tables))
    chunks.sort(key=_num_draft_tokens, reverse=True)
    return chunks


def num_draft_tokens(request: RequestView, limits: Limits) -> int:
    """K, cut to the slots the request has and to the draft's context.

    The target verifies K drafts with slots for all of them; the draft itself computes all but the last.
    """
    length = len(request.token_ids)
    return max(min(request.num_draft_tokens, request.num_slots - length, limits.max_len - length + 1), 0)


def _in_turn(
    requests: Sequence[RequestView],
    coverage: DraftCoverage,
    block_tables: Callable[[int], BlockTables],
    limits: Limits,
) -> list[tuple[RequestView, int, int, BlockTables]]:
    """Requests with their K, their watermark and their block tables."""
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
