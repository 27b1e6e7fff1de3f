"""Decides from a request's options whether it may have drafts, and whose texts they may come from."""

from typing import Any, Literal

from vllm_spec_plugin.metrics.counters import POOLING, PROMPT_EMBEDS, RESUMABLE, THINKING_BUDGET

SharedScope = Literal["salt", "global"]


def why_without_drafts(request: Any) -> str | None:
    """Says why a request gets no drafts, or None if it may have some.

    Decided in the scheduler's process, from what does not change while the request lives, so that all ranks agree.
    A request's own `spec: off` is not a reason but its choice, see `read_options`.

    Args:
        request: vLLM's `Request`.

    Returns:
        One of `WITHOUT_DRAFTS`:
        `thinking_budget`: vLLM's account of thinking tokens takes one token per step, and its state cannot be wound
        back after a rejection.
        `resumable`: where a session's turn stops inside accepted drafts, vLLM cuts the text, not the computed tokens:
        the next turn would stand on the keys and values of the cut ones.
        `prompt_embeds`: positions of the prompt have no token ids to draft from.
        `pooling`: nothing is sampled.
    """
    params = request.sampling_params
    if params is None:
        return POOLING
    if params.thinking_token_budget is not None:
        return THINKING_BUDGET
    if request.resumable:
        return RESUMABLE
    if request.prompt_embeds is not None:
        return PROMPT_EMBEDS
    return None


def scope_of(cache_salt: str | None, shared_scope: SharedScope) -> str | None:
    """The scope of a request; None is private: it neither reads nor writes anything shared.

    Args:
        cache_salt: what the request was sent with, the secret of those who may share. Empty is none.
        shared_scope: "salt" keeps requests without a salt private; "global" gives all of them one scope, which
            no salt can name.
    """
    if cache_salt:
        return f"salt:{cache_salt}"
    return "global" if shared_scope == "global" else None
