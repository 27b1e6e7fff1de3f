"""Decides from a request's options whether it may have drafts, and the scope of its text."""

from typing import Literal

from vllm_spec_plugin.metrics.counters import POOLING, PROMPT_EMBEDS, RESUMABLE, THINKING_BUDGET

SharedScope = Literal["salt", "global"]
# The scope of requests without a salt, if they share text.
GLOBAL = "global"


def why_without_drafts(
    samples: bool, thinking_token_budget: int | None, resumable: bool, prompt_embeds: object | None
) -> str | None:
    """Returns why a request gets no drafts, whatever drafts in this server, or None if it may have drafts.

    The scheduler's process decides, from constant options of the request, so that all ranks agree. A request's own
    `spec: off` is no such reason, see `read_options`.

    Args:
        samples: whether the request samples tokens.
        thinking_token_budget: the request's; None without one.
        resumable: whether further turns of a streaming session may follow.
        prompt_embeds: embeddings in place of token ids; None without any.

    Returns:
        One of `WITHOUT_DRAFTS`:
        `pooling`: nothing is sampled.
        `thinking_budget`: vLLM counts one thinking token per step, and cannot undo it after a rejection.
        `resumable`: if a session's turn stops inside accepted drafts, vLLM cuts the text, not the computed tokens; the
        next turn would use keys and values of the cut tokens.
        `prompt_embeds`: positions of the prompt have no token ids to draft from.
    """
    if not samples:
        return POOLING
    if thinking_token_budget is not None:
        return THINKING_BUDGET
    if resumable:
        return RESUMABLE
    return PROMPT_EMBEDS if prompt_embeds is not None else None


def is_cut_by_value(has_grammar: bool, temperature: float) -> bool:
    """Whether vLLM may cut a request's sampled drafts because of their tokens.

    It drops a draft from the first token that a grammar excludes. Verification then takes the token from p, where
    after the rejection of a sampled token it must take it from the rest of p over q: outputs would be biased.

    Args:
        has_grammar: whether the request has structured outputs.
        temperature: the request's; greedy outputs do not depend on q.
    """
    return has_grammar and temperature > 0


def scope_of(cache_salt: str | None, shared_scope: SharedScope) -> str | None:
    """Returns the scope of a request; None is private: it neither reads nor writes shared text.

    Args:
        cache_salt: the request's salt; requests with the same one share their text. Empty is none.
        shared_scope: "salt" keeps requests without a salt private; "global" gives all of them one scope, different
            from those of all salts.
    """
    if cache_salt:
        return f"salt:{cache_salt}"
    return GLOBAL if shared_scope == "global" else None
