"""Which requests are served without drafts, and why."""

from typing import Any

THINKING_BUDGET = "thinking_budget"
RESUMABLE = "resumable"
PROMPT_EMBEDS = "prompt_embeds"
POOLING = "pooling"
REASONS = (THINKING_BUDGET, RESUMABLE, PROMPT_EMBEDS, POOLING)


def why_without_drafts(request: Any) -> str | None:
    """Says why a request gets no drafts, or None if it may have some.

    Decided in the scheduler's process, from what does not change while the request lives, so that all ranks agree.
    A request's own `spec: off` is not a reason but its choice, see `read_options`.

    Args:
        request: vLLM's `Request`.

    Returns:
        One of `REASONS`:
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
