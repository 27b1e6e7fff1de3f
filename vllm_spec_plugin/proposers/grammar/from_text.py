"""Drafts with a grammar that knows forced texts."""

from collections.abc import Callable

from vllm_spec_plugin.proposers.grammar.state import NOTHING, GrammarDraft, GrammarState, Kind, Trial
from vllm_spec_plugin.proposers.grammar.stopping import stop_draft
from vllm_spec_plugin.proposers.grammar.tokenization import Segment, Tokenization
from vllm_spec_plugin.proposers.grammar.whitespace import Style

# Characters that values, keys and their ends begin with. Two of the first are allowed inside a text.
_PROBES = 'a"0,}]:{[-tfn123456789'
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
        segments, follow = _segments(state, trial, read, most * _LONG_TOKEN, is_late)
        draft, is_whole = NOTHING, True
        if segments:
            draft, is_whole = tokenization.draft(last_token, tuple(segments), follow)
            is_whole = is_whole and bool(draft.token_ids)
        token_ids, kinds = draft.token_ids[:most], draft.kinds[:most]
        if is_whole and len(token_ids) < most and state.is_complete():
            stop = stop_draft(state, state.allowed(_MOST_STOPS))
            token_ids, kinds = [*token_ids, *stop.token_ids], [*kinds, *stop.kinds]
    return GrammarDraft(token_ids, kinds) if token_ids else NOTHING


def _segments(
    state: GrammarState, trial: Trial, read: Read, enough: int, is_late: Callable[[], bool]
) -> tuple[list[Segment], str]:
    """Returns the drafted text, and a character that may follow it; empty if none is known.

    Args:
        state: the request's grammar.
        trial: takes the text.
        read: see `draft_text`.
        enough: characters after which the text ends.
        is_late: see `draft_text`.
    """
    segments: list[Segment] = []
    style, tail, length = None, "", 0
    while length < enough and not is_late():
        text, kind = state.forced_text(), Kind.LIKELY
        if not text:
            following = _following(trial)
            if len(following) != 1 or not (trial.allows(" ") or trial.allows("\n")):
                return segments, following[:1]
            if style is None:
                tail = read()
                style = Style(tail)
            drafted = tail + "".join(segment.text for segment in segments)
            text, kind = style.before(drafted, following) + following, Kind.GUESS
        if not trial.accept_text(text):
            return segments, ""
        segments.append(Segment(text, kind))
        length += len(text)
    return segments, ""


def _following(trial: Trial) -> str:
    """Returns the first two probes that may follow; fewer if there are no more."""
    found = ""
    for probe in _PROBES:
        if trial.allows(probe):
            found += probe
            if len(found) == 2:
                break
    return found
