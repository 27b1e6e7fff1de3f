"""Drafts with a grammar of which only the allowed tokens are known."""

from collections.abc import Callable, Sequence

from vllm_spec_plugin.proposers.grammar.state import NOTHING, GrammarDraft, GrammarState, Kind, Trial
from vllm_spec_plugin.proposers.grammar.stopping import stop_draft
from vllm_spec_plugin.proposers.grammar.tokenization import Segment, Tokenization

# Tokens that are prefixes of one text are few.
_MOST_ALLOWED = 24


def draft_tokens(
    state: GrammarState, tokenization: Tokenization, last_token: int, most: int, is_late: Callable[[], bool]
) -> GrammarDraft:
    """Drafts the text of the longest allowed token as long as the others are its prefixes: the grammar forces it.

    Args:
        state: the request's grammar; it is the same afterwards.
        tokenization: knows the bytes of tokens, and tokenizes the draft.
        last_token: the request's latest token.
        most: maximum tokens of the draft, at least 1.
        is_late: whether time is up; the draft then ends.
    """
    forced, num_tokens, stop = b"", 0, NOTHING
    with Trial(state) as trial:
        while num_tokens < most and not is_late():
            allowed = state.allowed(_MOST_ALLOWED)
            token = _longest(allowed, tokenization)
            if token is None:
                stop = stop_draft(state, allowed)
                break
            if not trial.accept_token(token):
                break
            forced += tokenization.bytes_of(token) or b""
            num_tokens += 1
    # A character may be forced in part.
    text = forced.decode(errors="ignore")
    if not text:
        return NOTHING if forced else stop
    draft = tokenization.draft(last_token, (Segment(text, Kind.LIKELY),))
    if not draft.token_ids:
        return NOTHING
    return GrammarDraft([*draft.token_ids, *stop.token_ids][:most], [*draft.kinds, *stop.kinds][:most])


def _longest(allowed: Sequence[int], tokenization: Tokenization) -> int | None:
    """Returns the token of which all others are prefixes; None if there is no such."""
    texts = {token: tokenization.bytes_of(token) for token in allowed}
    longest = max(allowed, key=lambda token: len(texts[token] or b""), default=None)
    if longest is None or not (whole := texts[longest]):
        return None
    return longest if all(text and whole.startswith(text) for text in texts.values()) else None
