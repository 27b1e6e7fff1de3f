"""Drafts the token that ends a request's text."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.grammar.state import NOTHING, GrammarDraft, GrammarState, Kind


def stop_draft(state: GrammarState, allowed: Sequence[int]) -> GrammarDraft:
    """Drafts the likeliest stop token, if the text must end.

    Args:
        state: the request's grammar.
        allowed: the tokens that it allows next; empty if they are many.
    """
    stops = state.stop_token_ids
    stop = next((token for token in stops if token in allowed), None)
    if stop is None or not set(allowed) <= set(stops):
        return NOTHING
    return GrammarDraft([stop], [Kind.FORCED if len(allowed) == 1 else Kind.GUESS])
