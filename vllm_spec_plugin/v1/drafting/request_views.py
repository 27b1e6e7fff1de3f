"""Builds proposers' views of vLLM's batch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from vllm_spec_plugin.config.request_options import read_prediction
from vllm_spec_plugin.draft_plan import DraftPlan, longest
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.drafting.drafter import Drafter
from vllm_spec_plugin.v1.verification.constraints import GREEDY_TEMPERATURE

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner


def request_views(
    runner: "GPUModelRunner",
    sampled_token_ids: list[list[int]],
    drafter: Drafter,
    plan: Mapping[str, DraftPlan],
    hidden: torch.Tensor | None = None,
) -> list[RequestView]:
    """Builds the views of requests to draft for, after a step's tokens were appended to their texts.

    Args:
        runner: vLLM's model runner.
        sampled_token_ids: per request of the batch the tokens of this step; empty during its prefill.
        drafter: drafter whose proposers get the views.
        plan: proposers and draft lengths per request, at least one proposer each; other requests get no drafts.
        hidden: [batch_size, hidden_size], hidden states from which the last tokens were sampled.

    Returns:
        Views in batch order. Requests without room for a draft before `max_model_len` or their `max_tokens` are left
        out. With a draft model, requests in prefill have K = 0.
    """
    batch, engine, max_tokens = runner.input_batch, drafter.engine, drafter.config.draft_length.tokens
    trees = drafter.config.drafts_trees
    is_exact = drafter.config.verification.lenience == 1
    rows = sorted([row for row in map(batch.req_id_to_index.get, plan) if row is not None])
    # One call for all planned requests, used or not, keeps ranks and torch's default generator in step.
    shared = torch.rand(len(rows), drafter.siblings, max_tokens, dtype=torch.float64).numpy()
    texts = batch.token_ids_cpu[:]
    texts.flags.writeable = False
    lengths = batch.num_tokens_no_spec[rows].tolist()
    views = []
    for i, length, own in zip(rows, lengths, shared, strict=True):
        new = sampled_token_ids[i]
        if not (new or engine):
            continue
        request_id = batch.req_ids[i]
        request, draft_plan = runner.requests[request_id], plan[request_id]
        params, planned = request.sampling_params, longest(draft_plan)
        assert params is not None, "it would have no draft plan"
        assert request.prompt_token_ids is not None, "it would have no draft plan"
        # The scheduler counts a tree's tokens as if they stood one after the other.
        tokens = depth = runner.max_model_len - length - 1
        if params.max_tokens is not None:
            depth = min(depth, params.max_tokens - length + len(request.prompt_token_ids) - 1)
        depth = max(min(depth, planned), 0) if new else 0
        count = min(tokens, planned) if trees and depth else depth
        if new and not count:
            continue
        is_seeded, has_grammar = request.generator is not None, params.structured_outputs is not None
        views.append(
            RequestView(
                request_id=request_id,
                token_ids=texts[i, :length],
                num_draft_tokens=count,
                uniforms=own[0, :depth],
                # Draft lengths depend on contention and time; with point masses seeded outputs do not depend on drafts.
                point_mass=is_seeded or has_grammar or params.temperature < GREEDY_TEMPERATURE,
                row=i,
                num_slots=engine.num_slots(i) if engine else 0,
                in_prompt=not new,
                depth=depth,
                # A grammar is followed along one continuation.
                chain_only=has_grammar,
                sibling_uniforms=own[:, :depth].T,
                hidden=None if hidden is None else hidden[i],
                scope=drafter.scopes.get(request_id) if is_exact or not is_seeded else None,
                draft_plan=draft_plan,
                num_prompt_tokens=len(request.prompt_token_ids),
                prediction=read_prediction(params.extra_args),
            )
        )
    return views
