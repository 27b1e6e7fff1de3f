"""Allocates KV blocks for branches of trees, for verification and for a draft model."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.messages import Forks, TreeShape
from vllm_spec_plugin.turns import Turns, length_of


class TreeForks:
    """Keeps the shapes of trees until they are verified, and allocates blocks for their branches.

    Attributes:
        verifying: shape of each tree with branches that the planned step verifies, by request.
    """

    def __init__(self, manager: SpecKVCacheManager, config: PluginConfig) -> None:
        """Starts without trees.

        Args:
            manager: KV cache manager that allocates the blocks.
            config: the plugin's configuration.
        """
        self._manager, self._kv_proposer = manager, config.kv_proposer
        # By draft length: branches with KV of the draft model's own, and their depth. Empty if it drafts chains.
        self._drafting: tuple[TreeShape, ...] = ()
        self._shift = 0
        for proposer in config.proposers:
            if shapes := proposer.branch_shapes:
                self._drafting = tuple([(max(num_chains - 1, 0), depth) for num_chains, depth in shapes])
                # A head's keys and values of a token are one position before the target's.
                self._shift = int(proposer.uses_aux_states)
        self._waiting: dict[str, TreeShape] = {}
        self.verifying: dict[str, TreeShape] = {}

    def add(self, request_id: str, shape: TreeShape) -> None:
        """Keeps the shape of a drafted tree until it is verified."""
        self._waiting[request_id] = shape

    def forget(self, request_id: str) -> None:
        """Drops the waiting tree of a finished request."""
        self._waiting.pop(request_id, None)

    def give(self, output: Any, running: Sequence[Request], turns: Mapping[str, Turns]) -> dict[str, Forks]:
        """Allocates blocks for branches of requests that verify or draft a tree in the planned step.

        Earlier requests come first. With too few blocks the workers leave out a tree's last branches, regardless of
        their tokens.

        Args:
            output: vLLM's plan of the step.
            running: all running requests.
            turns: turns of the step, by request id.

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
        if not (self.verifying or (self._drafting and turns)):
            return {}
        forks: dict[str, Forks] = {}
        for request in running:
            request_id = request.request_id
            if request_id not in scheduled or request.is_prefill_chunk:
                continue
            num_forks, size = self._demand(request, len(drafts.get(request_id, ())), turns.get(request_id, ()))
            if num_forks and (block_ids := self._manager.fork(request, num_forks, size)):
                forks[request_id] = (block_ids, size)
        return forks

    def branches_to_draft(self, turns: Turns) -> TreeShape:
        """Returns the branches that the draft model drafts for a request with these turns, and their depth."""
        if not self._drafting:
            return 0, 0
        return self._drafting[min(length_of(turns, self._kv_proposer), len(self._drafting) - 1)]

    def _demand(self, request: Request, num_drafts: int, turns: Turns) -> tuple[int, int]:
        """Returns the branches of a request that need blocks, and the number of blocks per branch."""
        # vLLM counts the step's tokens as computed already, drafts too.
        length = request.num_computed_tokens - num_drafts
        num_forks, depth = self.verifying.get(request.request_id, (0, 0))
        size = self._num_blocks(length, length + depth - 1) if num_forks else 0
        num_branches, reach = self.branches_to_draft(turns)
        if num_branches:
            # Where the text will end is not known yet. The last draft of a branch is not fed to the proposer.
            num_forks = max(num_forks, num_branches)
            first = length + 1 - self._shift
            size = max(size, self._num_blocks(first, first + depth + reach - 2))
        return num_forks, size

    def _num_blocks(self, first: int, last: int) -> int:
        """Returns the number of blocks with positions from `first` to `last`, at least that of `first`."""
        size: int
        [size] = self._manager.block_sizes
        return max(last, first) // size - first // size + 1
