"""Which slots of the KV cache hold the draft's keys and values of the text that is there."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# A request's block ids, one table per KV group of the draft's layers.
BlockTables = Sequence[npt.NDArray[np.int32]]


@dataclass
class _Known:
    """What the draft has computed of one request.

    Attributes:
        watermark: tokens of the text, from its beginning.
        fed: drafts fed to the draft model after the whole text, in order: in the cache too, and still
            right if the text goes on like this.
    """

    watermark: int
    fed: list[int] = field(default_factory=list)


class DraftCoverage:
    """Keeps a draft watermark per request, and remembers blocks that outlive it in the prefix cache.

    The draft's keys and values lie in vLLM's blocks. A block is *whole* when all its slots hold the draft's state
    of the tokens that vLLM has the block for. It stays so until it is allocated anew, whoever finds it in the prefix
    cache in between. Where vLLM puts the draft's layers into several KV groups, each with blocks of its own, a
    position is covered if it is in every group.

    Attributes:
        block_sizes: tokens per block of each KV group.
    """

    def __init__(self, num_blocks: int, block_sizes: Sequence[int]) -> None:
        """Nothing is covered.

        Args:
            num_blocks: of the pool, which all groups share; block ids are below.
            block_sizes: tokens per block of each KV group.
        """
        self.block_sizes = tuple(block_sizes)
        self._whole = np.zeros(num_blocks, dtype=np.bool_)
        self._known: dict[str, _Known] = {}

    def allocated(self, request_id: str, first: int, block_ids: Sequence[int], group: int = 0) -> None:
        """Takes note of blocks that a request got to fill: whatever was in them is void.

        Args:
            request_id: who got them.
            first: the place in the request's block table of the first of them; later ones follow it.
            block_ids: which.
            group: the place of their KV group in `block_sizes`.
        """
        self._whole[block_ids] = False
        if (known := self._known.get(request_id)) is not None:
            self._cut(known, first * self.block_sizes[group])

    def watermark(
        self,
        request_id: str,
        token_ids: npt.NDArray[np.int32],
        tables: BlockTables,
        soon: Collection[int] = (),
    ) -> int:
        """How many tokens of the text, from its beginning, the draft has in the cache.

        Args:
            request_id: whose.
            token_ids: [num_tokens], its text.
            tables: its block tables, each with blocks for the whole text.
            soon: blocks that will be whole by the time it matters.
        """
        known, covered, num_tokens = self._known.get(request_id), 0, len(token_ids)
        if known is not None and known.watermark <= num_tokens:
            covered, fed = known.watermark, known.fed
            following = token_ids[covered : covered + len(fed)].tolist() if fed else fed
            covered += len(fed) if fed == following else _num_same(fed, following)
        # In most steps no block ends between the two.
        for size in self.block_sizes:
            if covered // size < num_tokens // size:
                return self._past_whole_blocks(covered, num_tokens, tables, soon)
        return covered

    def blocks_filled(self, start: int, stop: int, tables: BlockTables) -> list[int]:
        """The blocks that become whole when positions `start` to `stop` are computed and those before are there."""
        filled: list[int] = []
        for size, block_ids in zip(self.block_sizes, tables, strict=True):
            first, last = start // size, stop // size
            # Most steps fill none.
            if first < last:
                filled += block_ids[first:last].tolist()
        return filled

    def computed(self, request_id: str, start: int, stop: int, tables: BlockTables, fed: Sequence[int] = ()) -> None:
        """Takes note of what the draft has computed.

        Args:
            request_id: for whom.
            start: position in the text of the first token, at most its watermark.
            stop: position after the last one.
            tables: its block tables.
            fed: drafts fed after position `stop`, if that is the end of the text.
        """
        known = self._known.get(request_id)
        # Blocks may also have been filled by drafts that have been accepted since.
        first = start if known is None else min(start, known.watermark)
        if filled := self.blocks_filled(first, stop, tables):
            self._whole[filled] = True
        self._known[request_id] = _Known(stop, list(fed))

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark; its whole blocks stay whole."""
        self._known.pop(request_id, None)

    def reset(self) -> None:
        """Nothing is covered any more."""
        self._whole[:] = False
        self._known.clear()

    def _cut(self, known: _Known, length: int) -> None:
        known.fed = known.fed[: max(length - known.watermark, 0)]
        known.watermark = min(known.watermark, length)

    def _past_whole_blocks(self, covered: int, num_tokens: int, tables: BlockTables, soon: Collection[int]) -> int:
        return min(
            self._past_whole(covered, num_tokens, size, block_ids, soon)
            for size, block_ids in zip(self.block_sizes, tables, strict=True)
        )

    def _past_whole(
        self, covered: int, num_tokens: int, size: int, block_ids: npt.NDArray[np.int32], soon: Collection[int]
    ) -> int:
        count, last = covered // size, num_tokens // size
        for block_id in block_ids[count:last].tolist() if count < last else ():
            if not (self._whole[block_id] or block_id in soon):
                break
            count += 1
        return max(covered, count * size)


def _num_same(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Length of the common prefix."""
    for i, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return i
    return min(len(ours), len(theirs))
