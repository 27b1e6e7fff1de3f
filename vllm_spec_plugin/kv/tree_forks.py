"""KV blocks for the branches of trees: of those to verify, and of those that a draft model follows."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.messages import Forks, TreeShape
from vllm_spec_plugin.turns import Turns, length_of


class TreeForks:
    """Keeps the shapes of trees until they are verified, and gives their branches blocks of their own.

    Attributes:
        verifying: per request that verifies a tree with branches in the planned step, its shape.
    """

    def __init__(self, manager: SpecKVCacheManager, config: PluginConfig) -> None:
        """Starts without trees.

        Args:
            manager: gives the blocks.
            config: the plugin's.
        """
        self._manager, self._kv_proposer = manager, config.kv_proposer
        # By the tokens of a draft: branches that a draft model follows, each with keys and values of its own, and
        # their depth. Empty where it follows none.
        self._drafting: tuple[TreeShape, ...] = ()
        for proposer in config.proposers:
            if shapes := proposer.branch_shapes:
                self._drafting = tuple([(max(num_chains - 1, 0), depth) for num_chains, depth in shapes])
        self._waiting: dict[str, TreeShape] = {}
        self.verifying: dict[str, TreeShape] = {}

    def add(self, request_id: str, shape: TreeShape) -> None:
        """Keeps the shape of a tree that was drafted, until it is verified."""
        self._waiting[request_id] = shape

    def forget(self, request_id: str) -> None:
        """Drops the waiting tree of a request that ended."""
        self._waiting.pop(request_id, None)

    def give(self, output: Any, running: Sequence[Request], turns: Mapping[str, Turns]) -> dict[str, Forks]:
        """Gives requests that verify a tree in the planned step, or draft one, blocks for its branches.

        Earlier requests come first. What is missing costs branches: the workers leave out a tree's last ones,
        whatever their tokens are.

        Args:
            output: vLLM's plan of the step.
            running: all running requests.
            turns: the step's, by request id.

        Returns:
            The blocks of each request that got some.
        """
        waiting, drafts, scheduled = self._waiting, output.scheduled_spec_decode_tokens, output.num_scheduled_tokens
        self.verifying = {}
        # A request whose drafts were all cut has none to verify, and its tree is no more.
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
        """Branches that the draft model follows for a request with these turns, and their depth."""
        if not self._drafting:
            return 0, 0
        return self._drafting[min(length_of(turns, self._kv_proposer), len(self._drafting) - 1)]

    def _demand(self, request: Request, num_drafts: int, turns: Turns) -> tuple[int, int]:
        """Branches of a request that need blocks, and the number of blocks that each of them needs."""
        # vLLM counts the step's tokens as computed already, drafts too.
        length = request.num_computed_tokens - num_drafts
        num_forks, depth = self.verifying.get(request.request_id, (0, 0))
        size = self._num_blocks(length, length + depth - 1) if num_forks else 0
        num_branches, reach = self.branches_to_draft(turns)
        if num_branches:
            # Where the text will end is not known yet. The last draft of a branch is not fed to the proposer.
            num_forks = max(num_forks, num_branches)
            size = max(size, self._num_blocks(length + 1, length + 1 + depth + reach - 2))
        return num_forks, size

    def _num_blocks(self, first: int, last: int) -> int:
        """Blocks that hold the positions from `first` to `last`, `first` at least."""
        size: int
        [size] = self._manager.block_sizes
        return max(last, first) // size - first // size + 1
