"""What a proposer gets to see of vLLM's batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.turns import Turns, longest
from vllm_spec_plugin.verification.constraints import GREEDY_TEMPERATURE
from vllm_spec_plugin.verification.noise import hashed_uniform, position_keys, signed
from vllm_spec_plugin.worker.drafter import Drafter

# See `verification/noise.py`.
_DRAFT_COUNTER = -3


def request_views(
    runner: Any,
    sampled_token_ids: list[list[int]],
    drafter: Drafter,
    plan: Mapping[str, Turns],
    hidden: torch.Tensor | None = None,
) -> tuple[list[int], list[RequestView]]:
    """The requests that are to be drafted for, after a step's tokens are on their texts.

    Args:
        runner: vLLM's model runner.
        sampled_token_ids: per request of the batch the tokens of this step; empty while its prompt is
            not through.
        drafter: whose proposer is going to draft.
        plan: who is to draft for each request, and how much; nobody for those it does not name.
        hidden: [batch_size, hidden_size], what each request's last token was sampled from.

    Returns:
        Their places in the batch, and their views. A request that has no room for a draft before `max_model_len` or
        its `max_tokens` is left out, and so is one whose prompt has no tokens. With a draft model, those in the
        middle of their prompt have K = 0.
    """
    batch, engine, most = runner.input_batch, drafter.engine, drafter.config.draft_length.tokens
    trees = drafter.config.drafts_trees
    # Whether a token was drafted or not must not show in seeded output where what is drafted depends on the time.
    is_fixed = drafter.config.draft_length.policy == "fixed"
    # Nor what others said before: where certain drafts are verified exactly, neither does.
    is_blind = not (drafter.draws and is_fixed) and drafter.config.verification.lenience == 1
    num_siblings = drafter.siblings
    # One draw for all, used or not: ranks stay in step, and so does torch's default generator.
    shared = torch.rand(len(sampled_token_ids), num_siblings, most, dtype=torch.float64).numpy()
    places, views = [], []
    for i, new in enumerate(sampled_token_ids):
        request_id = batch.req_ids[i]
        request = runner.requests[request_id]
        params = request.sampling_params
        turns = plan.get(request_id, ())
        if not turns or params is None or request.prompt_token_ids is None or not (new or engine):
            continue
        length, wanted = int(batch.num_tokens_no_spec[i]), longest(turns)
        num_output = length - len(request.prompt_token_ids)
        # The scheduler counts a tree's tokens as if they stood one after the other.
        tokens = depth = runner.max_model_len - length - 1
        if params.max_tokens is not None:
            depth = min(depth, params.max_tokens - num_output - 1)
        depth = max(min(depth, wanted), 0) if new else 0
        count = min(tokens, wanted) if trees and depth else depth
        # A grammar and a budget for thinking are followed along one continuation.
        chain_only = params.structured_outputs is not None or params.thinking_token_budget is not None
        if new and not count:
            continue
        uniforms = shared[i, :, :depth]
        if request.generator is not None and depth:
            uniforms = _own_uniforms(request.generator.initial_seed(), num_output, num_siblings, depth)
        views.append(
            RequestView(
                request_id=request_id,
                token_ids=batch.token_ids_cpu[i, :length],
                num_draft_tokens=count,
                uniforms=uniforms[0],
                point_mass=params.temperature < GREEDY_TEMPERATURE
                or params.structured_outputs is not None
                or not (is_fixed or request.generator is None),
                row=i,
                num_slots=engine.num_slots(i) if engine else 0,
                in_prompt=not new,
                depth=depth,
                chain_only=chain_only,
                sibling_uniforms=uniforms.T,
                hidden=None if hidden is None else hidden[i],
                scope=drafter.scopes.get(request_id) if is_blind or request.generator is None else None,
                turns=turns,
            )
        )
        places.append(i)
    return places, views


def _own_uniforms(seed: int, position: int, num_siblings: int, count: int) -> npt.NDArray[np.float64]:
    """[num_siblings, count]: keyed by place, so that none is used again that has decided about the output."""
    positions = torch.arange(position, position + count)
    keys = position_keys(torch.full_like(positions, signed(seed)), positions)
    siblings = torch.arange(num_siblings)[:, None]
    return hashed_uniform(keys, _DRAFT_COUNTER - 2 * siblings).numpy()
