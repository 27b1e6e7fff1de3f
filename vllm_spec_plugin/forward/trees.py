"""Verifies trees on vLLM's runner: lays out the step before the forward pass, joins branches after it."""

from collections.abc import Mapping
from typing import Any

import torch

from vllm_spec_plugin.compat.tree_attention import TreeAttention
from vllm_spec_plugin.forward.tree_step import StepRequest, TreeStep, plan_tree_step
from vllm_spec_plugin.messages import Forks
from vllm_spec_plugin.verification.topology import Topology


class TreeSteps:
    """Keeps the layout of the current step.

    Attributes:
        attention: the target's attention layers.
        step: layout of the step; None if it verifies chains only.
        trees: per request of the batch the tree to verify.
        forks: per request id, block ids of its branches, and the number of blocks per branch.
    """

    def __init__(self, attention: TreeAttention, keeps_kv: bool) -> None:
        """Takes the wrapped attention layers.

        Args:
            attention: the target's attention layers.
            keeps_kv: whether a draft model has state in the same blocks.
        """
        self.attention = attention
        self._keeps_kv = keeps_kv
        self.step: TreeStep | None = None
        self.trees: list[Topology] = []
        self.forks: Mapping[str, Forks] = {}

    def without_drafts(self, forks: Mapping[str, Forks]) -> None:
        """Records a step that verifies nothing; `forks` are for trees that it drafts."""
        self.trees, self.step, self.forks = [], None, forks

    def prepare(
        self, runner: Any, num_scheduled: Mapping[str, int], trees: list[Topology], forks: Mapping[str, Forks]
    ) -> None:
        """Lays out the step after vLLM has done so for chains: corrects positions and slots, and copies blocks.

        Args:
            runner: vLLM's model runner.
            num_scheduled: per request id the tokens that the step computes.
            trees: per request of the batch the shape of its drafts.
            forks: per request id, block ids of its branches, and the number of blocks per branch.
        """
        self.trees, self.step, self.forks = trees, None, forks
        if not any(len(tree.chains) > 1 for tree in trees):
            return
        batch = runner.input_batch
        requests = []
        for row, (request_id, tree) in enumerate(zip(batch.req_ids, trees, strict=True)):
            block_ids, size = forks.get(request_id, ((), 1))
            num_computed = int(batch.num_computed_tokens_cpu[row])
            num_tokens = num_scheduled[request_id]
            requests.append(StepRequest(row, num_computed, num_tokens, tree, block_ids, size))
        table = batch.block_table[self.attention.group]
        step = self.step = plan_tree_step(requests, table.block_table.np, self.attention.block_size, self._keeps_kv)
        self.attention.copy_blocks(step.copies)
        nodes, positions, slots, shared, shared_slots = (
            torch.from_numpy(array).to(runner.device)
            for array in (step.nodes, step.positions, step.slots, step.shared, step.shared_slots)
        )
        runner.positions[nodes] = positions
        table.slot_mapping.gpu[nodes] = slots
        self.attention.share(shared, shared_slots)

    def metadata(self, num_tokens: int, slots: torch.Tensor) -> tuple[dict[str, Any], Any]:
        """Builds the attention metadata of the step; `num_tokens` and `slots` ([num_tokens] int64) include padding."""
        assert self.step is not None
        return self.attention.metadata(self.step.query_start, self.step.lengths, self.step.tables, num_tokens, slots)

    @property
    def num_nodes(self) -> dict[int, int]:
        """Number of nodes of each tree with branches, by row of the batch."""
        branched = self.step.branched if self.step is not None else {}
        return {row: this.tree.num_nodes for row, this in branched.items()}

    @property
    def num_left_out(self) -> int:
        """Number of the step's draft tokens that cannot be verified for lack of blocks."""
        branched = self.step.branched.values() if self.step is not None else ()
        return sum(this.tree.num_nodes - this.num_nodes for this in branched)

    def without_left_out(self, draft_token_ids: torch.Tensor, nothing: int) -> torch.Tensor:
        """Returns [num_draft_tokens], the step's draft tokens, with `nothing` for those that cannot be verified."""
        assert self.step is not None
        if not self.num_left_out:
            return draft_token_ids
        left_out: list[int] = []
        start = 0
        for row, tree in enumerate(self.trees):
            branched = self.step.branched.get(row)
            if branched is not None:
                left_out += range(start + branched.num_nodes, start + tree.num_nodes)
            start += tree.num_nodes
        mask = torch.tensor(left_out, device=draft_token_ids.device)
        return draft_token_ids.index_fill(0, mask, nothing)

    def join(self, nodes: torch.Tensor) -> dict[int, tuple[int, ...]]:
        """Copies accepted branches into the requests' own blocks.

        Args:
            nodes: [batch_size] int64, each request's last accepted node, -1 for none.

        Returns:
            Per row with a tree, its accepted nodes.
        """
        self.attention.stop_sharing()
        if self.step is None:
            return {}
        last = nodes.tolist()
        copies, accepted = [], {}
        for row, branched in self.step.branched.items():
            copies += branched.join(last[row], self.attention.block_size)
            accepted[row] = branched.tree.way(last[row])
        self.attention.copy_blocks(copies)
        self.step = None
        return accepted
