"""Which slots of the KV cache hold the draft's keys and values of the text that is there. Imports no vLLM."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


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

    The draft's keys and values lie in the same blocks as the target's, under the same block ids. A block
    is *whole* when all its slots hold the draft's state of the tokens the target's state is of. It
    stays so until it is allocated anew, whoever finds it in the prefix cache in between.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """Nothing is covered.

        Args:
            num_blocks: of the pool; block ids are below.
            block_size: tokens per block.
        """
        self.block_size = block_size
        self._whole = np.zeros(num_blocks, dtype=np.bool_)
        self._known: dict[str, _Known] = {}

    def allocated(self, request_id: str, first: int, block_ids: Sequence[int]) -> None:
        """Takes note of blocks that a request got to fill: whatever was in them is void.

        Args:
            request_id: who got them.
            first: the place in the request's block table of the first of them; later ones follow it.
            block_ids: which.
        """
        self._whole[block_ids] = False
        if (known := self._known.get(request_id)) is not None:
            self._cut(known, first * self.block_size)

    def watermark(
        self,
        request_id: str,
        token_ids: npt.NDArray[np.int32],
        block_ids: npt.NDArray[np.int32],
        soon: Collection[int] = (),
    ) -> int:
        """How many tokens of the text, from its beginning, the draft has in the cache.

        Args:
            request_id: whose.
            token_ids: [num_tokens], its text.
            block_ids: its block table, at least as long as the text.
            soon: blocks that will be whole by the time it matters.
        """
        known = self._known.get(request_id)
        if known is None or known.watermark > len(token_ids):
            return self._past_whole_blocks(0, len(token_ids), block_ids, soon)
        following = token_ids[known.watermark : known.watermark + len(known.fed)].tolist()
        same = 0
        for ours, theirs in zip(known.fed, following, strict=False):
            if ours != theirs:
                break
            same += 1
        return self._past_whole_blocks(known.watermark + same, len(token_ids), block_ids, soon)

    def blocks_filled(self, start: int, stop: int, block_ids: npt.NDArray[np.int32]) -> list[int]:
        """The blocks that become whole when positions `start` to `stop` are computed and those before are there."""
        first, last = start // self.block_size, stop // self.block_size
        # Most steps fill none.
        filled: list[int] = block_ids[first:last].tolist() if first < last else []
        return filled

    def computed(
        self, request_id: str, start: int, stop: int, block_ids: npt.NDArray[np.int32], fed: Sequence[int] = ()
    ) -> None:
        """Takes note of what the draft has computed.

        Args:
            request_id: for whom.
            start: position in the text of the first token, at most its watermark.
            stop: position after the last one.
            block_ids: its block table.
            fed: drafts fed after position `stop`, if that is the end of the text.
        """
        known = self._known.get(request_id)
        # Blocks may also have been filled by drafts that have been accepted since.
        first = start if known is None else min(start, known.watermark)
        if filled := self.blocks_filled(first, stop, block_ids):
            self._whole[filled] = True
        self._known[request_id] = _Known(stop, list(fed))

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark; its whole blocks stay whole."""
        self._known.pop(request_id, None)

    def _cut(self, known: _Known, length: int) -> None:
        known.fed = known.fed[: max(length - known.watermark, 0)]
        known.watermark = min(known.watermark, length)

    def _past_whole_blocks(
        self, covered: int, num_tokens: int, block_ids: npt.NDArray[np.int32], soon: Collection[int]
    ) -> int:
        count, last = covered // self.block_size, num_tokens // self.block_size
        for block_id in block_ids[count:last].tolist() if count < last else ():
            if not (self._whole[block_id] or block_id in soon):
                break
            count += 1
        return max(covered, count * self.block_size)
