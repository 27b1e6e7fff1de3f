"""Verifies trees on vLLM's runner: lays out the step before the forward pass, joins branches after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.messages import Forks
from vllm_spec_plugin.v1.compat.tree_attention import TreeAttention
from vllm_spec_plugin.v1.tree_step import StepRequest, TreeStep, plan_tree_step
from vllm_spec_plugin.verification.topology import Topology

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner


@dataclass(frozen=True)
class TreesInStep:
    """The trees of a step with branches.

    Attributes:
        attention: the target's attention layers.
        trees: per request of the batch the shape of its drafts.
        layout: the step's sequences, positions and slots.
    """

    attention: TreeAttention
    trees: Sequence[Topology]
    layout: TreeStep

    def metadata(self, num_tokens: int, slots: torch.Tensor) -> tuple[dict[str, Any], Any]:
        """Builds the attention metadata of the step; `num_tokens` and `slots` ([num_tokens] int64) include padding."""
        layout = self.layout
        return self.attention.metadata(layout.query_start, layout.lengths, layout.tables, num_tokens, slots)

    @property
    def num_left_out(self) -> int:
        """Number of the step's draft tokens that cannot be verified for lack of blocks."""
        return sum(this.tree.num_nodes - this.num_nodes for this in self.layout.branched.values())

    def without_left_out(self, draft_token_ids: torch.Tensor, nothing: int) -> torch.Tensor:
        """Returns [num_draft_tokens], the step's draft tokens, with `nothing` for those that cannot be verified."""
        if not self.num_left_out:
            return draft_token_ids
        left_out: list[int] = []
        start = 0
        for row, tree in enumerate(self.trees):
            branched = self.layout.branched.get(row)
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
            Per row with branches, its accepted nodes.
        """
        self.attention.stop_sharing()
        last = nodes.tolist()
        copies, accepted = [], {}
        for row, branched in self.layout.branched.items():
            copies += branched.join(last[row], self.attention.block_size)
            accepted[row] = branched.tree.path_to(last[row])
        self.attention.copy_blocks(copies)
        return accepted


def lay_out(
    attention: TreeAttention,
    runner: "GPUModelRunner",
    num_scheduled: Mapping[str, int],
    trees: Sequence[Topology],
    forks: Mapping[str, Forks],
) -> TreesInStep | None:
    """Lays out a step after vLLM has done so for chains: corrects positions and slots, and copies blocks.

    Args:
        attention: the target's attention layers.
        runner: vLLM's model runner.
        num_scheduled: per request id the tokens that the step computes.
        trees: per request of the batch the shape of its drafts.
        forks: per request id, block ids of its branches, and the number of blocks per branch.

    Returns:
        None if all drafts are chains, which need no changes.
    """
    if not any(len(tree.chains) > 1 for tree in trees):
        return None
    batch = runner.input_batch
    requests = []
    for row, (request_id, tree) in enumerate(zip(batch.req_ids, trees, strict=True)):
        block_ids, size = forks.get(request_id, ((), 1))
        num_computed = int(batch.num_computed_tokens_cpu[row])
        num_tokens = num_scheduled[request_id]
        requests.append(StepRequest(row, num_computed, num_tokens, tree, block_ids, size))
    table = batch.block_table[attention.group]
    layout = plan_tree_step(requests, table.block_table.np, attention.block_size)
    attention.copy_blocks(layout.copies)
    nodes, positions, slots, shared, shared_slots = (
        torch.from_numpy(array).to(runner.device)
        for array in (layout.nodes, layout.positions, layout.slots, layout.shared, layout.shared_slots)
    )
    runner.positions[nodes] = positions
    table.slot_mapping.gpu[nodes] = slots
    attention.share(shared, shared_slots)
    return TreesInStep(attention, trees, layout)
