"""Keys and values that a drafter lacks of steps in which it rested: by request, and by KV block.

Blocks are named by vLLM's ids. A request that finds a lacking block in the prefix cache lacks what is in it, too.
"""

from collections.abc import Iterable, Mapping, Sequence

# Block ids of a request or of a part of it, per KV group.
Tables = Sequence[Sequence[int]]


class DrafterGaps:
    """Follows which requests and blocks lack the drafter's keys and values, until these are computed or blocks reused.

    Attributes:
        first: per request with a gap, the first position that may lack them; later ones may as well.
        blocks: ids of the blocks that lack some.
    """

    def __init__(self, block_sizes: Sequence[int], null_block: int) -> None:
        """Starts without gaps.

        Args:
            block_sizes: tokens per block of each KV group.
            null_block: id of the block that stands for none.
        """
        self.first: dict[str, int] = {}
        self.blocks: set[int] = set()
        self._sizes, self._null_block = block_sizes, null_block

    def __bool__(self) -> bool:
        return bool(self.first or self.blocks)

    def open(self, request_id: str, first: int, tables: Tables) -> None:
        """Notes a step without the drafter.

        Args:
            request_id: a request of the step.
            first: first position that the step computes, and that the drafter will lack.
            tables: all blocks of the request, those of the step included.
        """
        self.first[request_id] = min(first, self.first.get(request_id, first))
        for table, size in zip(tables, self._sizes, strict=True):
            self.blocks.update(table[first // size :])
        self.blocks.discard(self._null_block)

    def copied(self, copies: Iterable[tuple[int, int]]) -> None:
        """Notes blocks that a step copies before it computes anything, as (from, to)."""
        for source, target in copies:
            (self.blocks.add if source in self.blocks else self.blocks.discard)(target)

    def begun(self, request_id: str, num_computed: int, tables: Tables) -> set[int]:
        """Notes a request that begins, or begins again after preemption.

        Args:
            request_id: the request.
            num_computed: number of its tokens whose keys and values the target has.
            tables: all its blocks; those of computed tokens come from the prefix cache.

        Returns:
            The blocks that it found in the prefix cache and that lack something.
        """
        self.first.pop(request_id, None)
        first, lacking = num_computed, set[int]()
        for table, size in zip(tables, self._sizes, strict=True):
            num_found = -(-num_computed // size)
            self.blocks.difference_update(table[num_found:])
            found = [i for i, block in enumerate(table[:num_found]) if block in self.blocks]
            lacking.update(table[i] for i in found)
            if found:
                first = min(first, found[0] * size)
        if lacking:
            self.open(request_id, first, tables)
        return lacking

    def extended(self, request_id: str, added: Tables) -> None:
        """Notes blocks that a running request gets, and that a step with the drafter writes."""
        change = self.blocks.update if request_id in self.first else self.blocks.difference_update
        for table in added:
            change(table)
        self.blocks.discard(self._null_block)

    def fill(self, request_id: str, stop: int, num_tokens: int, tables: Tables) -> None:
        """Notes that the drafter has computed a request's gap up to `stop`, where the target has `num_tokens`."""
        first = self.first.pop(request_id)
        for table, size in zip(tables, self._sizes, strict=True):
            self.blocks.difference_update(table[first // size : stop // size if stop < num_tokens else None])
        if stop < num_tokens:
            self.first[request_id] = stop

    def spans(self, ends: Mapping[str, int], max_tokens: int) -> dict[str, tuple[int, int]]:
        """Returns which part of its gap each request computes now, (first, stop), shortest gaps first.

        Args:
            ends: per request that may draft, the tokens whose keys and values the target has.
            max_tokens: tokens of all parts together, and one more for each request.
        """
        spans: dict[str, tuple[int, int]] = {}
        for length, name in sorted((ends[name] - self.first[name], name) for name in ends.keys() & self.first.keys()):
            taken, first = min(length, max_tokens - 1), self.first[name]
            if taken < 1:
                break
            spans[name] = first, first + taken
            max_tokens -= taken + 1
        return spans

    def forget(self, request_id: str) -> None:
        """Forgets a request that ended; its blocks may stay in the prefix cache."""
        self.first.pop(request_id, None)
