"""Tracks the KV cache slots with the draft model's keys and values of the present text."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# A request's block ids, one table per KV group of the draft's layers.
BlockTables = Sequence[npt.NDArray[np.int32]]


@dataclass
class _Known:
    """Tokens of one request that the draft model has computed.

    Attributes:
        watermark: number of computed tokens from the beginning of the text.
        draft_tokens_in_kv: draft tokens computed after the whole text, in order; valid if the text continues with
            them.
    """

    watermark: int
    draft_tokens_in_kv: list[int] = field(default_factory=list)


class DraftCoverage:
    """Keeps the number of computed tokens per request, and the computed blocks that remain in the prefix cache.

    The draft model's keys and values are in vLLM's blocks. A block is *whole* when all its slots have the draft model's
    state of the block's tokens. It stays whole until it is allocated again, also for requests that find it in the
    prefix cache. If the draft model's layers are in several KV groups, a position is computed if it is in every group.

    Attributes:
        block_sizes: tokens per block of each KV group.
    """

    def __init__(self, num_blocks: int, block_sizes: Sequence[int]) -> None:
        """Starts without computed positions.

        Args:
            num_blocks: number of blocks in the pool of all groups; block ids are below.
            block_sizes: tokens per block of each KV group.
        """
        self.block_sizes = tuple(block_sizes)
        self._whole = np.zeros(num_blocks, dtype=np.bool_)
        self._known: dict[str, _Known] = {}

    def allocated(self, request_id: str, first: int, block_ids: Sequence[int], group: int = 0) -> None:
        """Records newly allocated blocks, whose previous content is invalid.

        Args:
            request_id: request that got them.
            first: index of the first one in the request's block table; the others follow.
            block_ids: ids of the blocks.
            group: index of their KV group in `block_sizes`.
        """
        self._whole[block_ids] = False
        if (known := self._known.get(request_id)) is not None:
            self._cut(known, first * self.block_sizes[group])

    def watermark(
        self,
        request_id: str,
        token_ids: npt.NDArray[np.int32],
        tables: BlockTables,
        completing_now: Collection[int] = (),
    ) -> int:
        """Returns the number of computed tokens from the beginning of the text.

        Args:
            request_id: id of the request.
            token_ids: [num_tokens], the request's text.
            tables: its block tables, each with blocks for the whole text.
            completing_now: blocks that other requests complete in this step.
        """
        known, covered, num_tokens = self._known.get(request_id), 0, len(token_ids)
        if known is not None and known.watermark <= num_tokens:
            covered, draft_tokens_in_kv = known.watermark, known.draft_tokens_in_kv
            following = (
                token_ids[covered : covered + len(draft_tokens_in_kv)].tolist()
                if draft_tokens_in_kv
                else draft_tokens_in_kv
            )
            covered += (
                len(draft_tokens_in_kv) if draft_tokens_in_kv == following else _num_same(draft_tokens_in_kv, following)
            )
        # In most steps no block ends between the two.
        for size in self.block_sizes:
            if covered // size < num_tokens // size:
                return self._past_whole_blocks(covered, num_tokens, tables, completing_now)
        return covered

    def blocks_filled(self, start: int, stop: int, tables: BlockTables) -> list[int]:
        """Returns the blocks that become whole when positions `start` to `stop` are computed after all before."""
        filled: list[int] = []
        for size, block_ids in zip(self.block_sizes, tables, strict=True):
            first, last = start // size, stop // size
            # Most steps fill none.
            if first < last:
                filled += block_ids[first:last].tolist()
        return filled

    def computed(
        self, request_id: str, start: int, stop: int, tables: BlockTables, draft_tokens_in_kv: Sequence[int] = ()
    ) -> None:
        """Records computed tokens.

        Args:
            request_id: id of the request.
            start: position of the first token, at most the watermark.
            stop: position after the last token.
            tables: the request's block tables.
            draft_tokens_in_kv: draft tokens computed after position `stop`, if that is the end of the text.
        """
        known = self._known.get(request_id)
        # Blocks may also have been filled by drafts that have been accepted since.
        first = start if known is None else min(start, known.watermark)
        if filled := self.blocks_filled(first, stop, tables):
            self._whole[filled] = True
        self._known[request_id] = _Known(stop, list(draft_tokens_in_kv))

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark; its whole blocks stay whole."""
        self._known.pop(request_id, None)

    def reset(self) -> None:
        """Drops all computed positions."""
        self._whole[:] = False
        self._known.clear()

    def _cut(self, known: _Known, length: int) -> None:
        known.draft_tokens_in_kv = known.draft_tokens_in_kv[: max(length - known.watermark, 0)]
        known.watermark = min(known.watermark, length)

    def _past_whole_blocks(
        self, covered: int, num_tokens: int, tables: BlockTables, completing_now: Collection[int]
    ) -> int:
        return min(
            self._past_whole(covered, num_tokens, size, block_ids, completing_now)
            for size, block_ids in zip(self.block_sizes, tables, strict=True)
        )

    def _past_whole(
        self,
        covered: int,
        num_tokens: int,
        size: int,
        block_ids: npt.NDArray[np.int32],
        completing_now: Collection[int],
    ) -> int:
        count, last = covered // size, num_tokens // size
        for block_id in block_ids[count:last].tolist() if count < last else ():
            if not (self._whole[block_id] or block_id in completing_now):
                break
            count += 1
        return max(covered, count * size)


def _num_same(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Length of the common prefix."""
    for i, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return i
    return min(len(ours), len(theirs))
