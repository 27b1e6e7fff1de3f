"""Allocates KV blocks for branches of trees that are verified."""

from collections.abc import Sequence

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import SchedulerOutput
from vllm_spec_plugin.messages import Forks, TreeShape
from vllm_spec_plugin.v1.kv.manager import SpecKVCacheManager


class TreeForks:
    """Keeps the shapes of trees until they are verified, and allocates blocks for their branches.

    Attributes:
        verifying: shape of each tree with branches that the planned step verifies, by request.
    """

    def __init__(self, manager: SpecKVCacheManager) -> None:
        """Starts without trees; `manager` allocates the blocks."""
        self._manager = manager
        self._waiting: dict[str, TreeShape] = {}
        self.verifying: dict[str, TreeShape] = {}

    def add(self, request_id: str, shape: TreeShape) -> None:
        """Keeps the shape of a drafted tree until it is verified."""
        self._waiting[request_id] = shape

    def forget(self, request_id: str) -> None:
        """Drops the waiting tree of a finished request."""
        self._waiting.pop(request_id, None)

    def give(self, output: SchedulerOutput, running: Sequence[Request]) -> dict[str, Forks]:
        """Allocates blocks for branches of requests that verify a tree in the planned step.

        Earlier requests come first. With too few blocks the workers leave out a tree's last branches, regardless of
        their tokens.

        Args:
            output: vLLM's plan of the step.
            running: all running requests.

        Returns:
            The blocks of each request that got any.
        """
        waiting, drafts, scheduled = self._waiting, output.scheduled_spec_decode_tokens, output.num_scheduled_tokens
        self.verifying = {}
        # The tree of a request without scheduled drafts is dropped.
        for request_id in waiting.keys() & scheduled.keys() if waiting else ():
            tree = waiting.pop(request_id)
            if request_id in drafts:
                self.verifying[request_id] = tree
        if not self.verifying:
            return {}
        forks: dict[str, Forks] = {}
        for request in running:
            request_id = request.request_id
            if request_id in self.verifying and not request.is_prefill_chunk:
                num_forks, depth = self.verifying[request_id]
                # vLLM counts the step's tokens as computed already, drafts too.
                length = request.num_computed_tokens - len(drafts[request_id])
                size = self._num_blocks(length, length + depth - 1)
                if block_ids := self._manager.fork(request, num_forks, size):
                    forks[request_id] = (block_ids, size)
        return forks

    def _num_blocks(self, first: int, last: int) -> int:
        """Returns the number of blocks with positions from `first` to `last`, at least that of `first`."""
        size: int
        [size] = self._manager.block_sizes
        return max(last, first) // size - first // size + 1
