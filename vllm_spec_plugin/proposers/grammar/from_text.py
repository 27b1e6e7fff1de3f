"""Drafts with a grammar that knows forced texts."""

from collections.abc import Callable

from vllm_spec_plugin.proposers.grammar.state import NOTHING, GrammarDraft, GrammarState, Kind, Trial
from vllm_spec_plugin.proposers.grammar.stopping import stop_draft
from vllm_spec_plugin.proposers.grammar.tokenization import Segment, Tokenization
from vllm_spec_plugin.proposers.grammar.whitespace import Style

# Where this may follow, text is free.
_FREE = "a"
# Characters that may follow another one in JSON, after whitespace; other characters end keys and values.
_VALUES = '"0-{[]tfn1'
_AFTER = {"{": '"}', "[": _VALUES, ":": _VALUES, ",": _VALUES}
_AFTER_OTHERS = ":,}]"
# Draft tokens are rarely longer, in characters.
_LONG_TOKEN = 8
# A text that may end has few stop tokens.
_MOST_STOPS = 16

Read = Callable[[], str]


def draft_text(
    state: GrammarState, tokenization: Tokenization, last_token: int, read: Read, most: int, is_late: Callable[[], bool]
) -> GrammarDraft:
    """Drafts forced text, over optional whitespace in the style of the request's own text, and its end.

    Args:
        state: the request's grammar; it is the same afterwards.
        tokenization: tokenizes the draft.
        last_token: the request's latest token.
        read: returns the end of the request's output.
        most: maximum tokens of the draft, at least 1.
        is_late: whether time is up; the draft then ends.
    """
    with Trial(state) as trial:
        segments = _segments(state, trial, read, most * _LONG_TOKEN, is_late)
        draft = tokenization.draft(last_token, tuple(segments)) if segments else NOTHING
        is_whole = bool(draft.token_ids) or not segments
        token_ids, kinds = draft.token_ids[:most], draft.kinds[:most]
        if is_whole and len(token_ids) < most and state.is_complete():
            stop = stop_draft(state, state.allowed(_MOST_STOPS))
            token_ids, kinds = [*token_ids, *stop.token_ids], [*kinds, *stop.kinds]
    return GrammarDraft(token_ids, kinds) if token_ids else NOTHING


def _segments(state: GrammarState, trial: Trial, read: Read, enough: int, is_late: Callable[[], bool]) -> list[Segment]:
    """Returns the drafted text, which `trial` has taken.

    Args:
        state: the request's grammar.
        trial: takes the text.
        read: see `draft_text`.
        enough: characters after which the text ends.
        is_late: see `draft_text`.
    """
    segments: list[Segment] = []
    style, text, length = None, "", 0
    while length < enough and not is_late():
        following, kind = state.forced_text(), Kind.LIKELY
        if not following:
            if state.allows(_FREE) or not (state.allows(" ") or state.allows("\n")):
                break
            if style is None:
                tail = read()
                style, text = Style(tail), tail + text
            chars = _following(state, text)
            if len(chars) != 1:
                break
            following, kind = style.before(text, chars) + chars, Kind.GUESS
        if not trial.accept_text(following):
            break
        segments.append(Segment(following, kind))
        text += following
        length += len(following)
    return segments


def _following(state: GrammarState, text: str) -> str:
    """Returns the first two characters that may follow a text after whitespace; fewer if there are no more."""
    found = ""
    for char in _AFTER.get(text.rstrip()[-1:], _AFTER_OTHERS):
        if state.allows(char):
            found += char
            if len(found) == 2:
                break
    return found
