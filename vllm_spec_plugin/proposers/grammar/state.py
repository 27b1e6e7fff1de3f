"""The contract of a request's grammar, as back ends of structured output have it, and of its tokenizer."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, Protocol, Self


class Kind(IntEnum):
    """Kinds of draft tokens, the most certain first.

    Attributes:
        FORCED: the grammar allows no other token.
        LIKELY: the grammar forces the text, which the target may tokenize otherwise.
        GUESS: the token has whitespace that the grammar leaves free, or ends a text that may end in several ways.
    """

    FORCED = 0
    LIKELY = 1
    GUESS = 2


class GrammarDraft(NamedTuple):
    """Draft tokens and their kinds.

    Attributes:
        token_ids: tokens that continue the request's text, each of which the grammar allows.
        kinds: kind of each token.
    """

    token_ids: list[int]
    kinds: list[Kind]


NOTHING = GrammarDraft([], [])


class Tokenizer(Protocol):
    """The target's tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Tokenizes a text, without tokens before or after it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens."""
        ...

    def pieces(self) -> Mapping[str, int]:
        """Returns the ids of all tokens but special ones, by the vocabulary's form of their text."""
        ...


class GrammarState(Protocol):
    """A request's grammar after its output so far. It is the one that constrains the request: undo each step.

    Attributes:
        reads_text: whether the back end knows forced texts and accepts texts; else only `allowed` and `accept_token`
            are used.
        stop_token_ids: tokens that end the request's text, the likeliest first.
    """

    @property
    def reads_text(self) -> bool: ...

    @property
    def stop_token_ids(self) -> Sequence[int]: ...

    def forced_text(self) -> str:
        """Returns the longest text with which every accepted continuation begins; it may be a part of that."""
        ...

    def allows(self, text: str) -> bool:
        """Whether it accepts a text next; nothing changes."""
        ...

    def accept_text(self, text: str) -> bool:
        """Takes a text as one step; False if the grammar refuses it, and then nothing changes."""
        ...

    def accept_token(self, token_id: int) -> bool:
        """Takes a token as one step; False if the grammar refuses it, and then nothing changes."""
        ...

    def undo(self, num_steps: int) -> None:
        """Takes back the latest steps."""
        ...

    def is_complete(self) -> bool:
        """Whether the text may end here."""
        ...

    def allowed(self, most: int) -> list[int]:
        """Returns the tokens that are allowed next; empty if there are more than `most`."""
        ...


class Trial:
    """Steps of a grammar that are undone at the end of a `with` statement, also after an exception."""

    def __init__(self, state: GrammarState) -> None:
        """Starts without steps."""
        self._state, self._num_steps = state, 0

    def accept_text(self, text: str) -> bool:
        """See `GrammarState`."""
        is_accepted = self._state.accept_text(text)
        self._num_steps += is_accepted
        return is_accepted

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarState`."""
        is_accepted = self._state.accept_token(token_id)
        self._num_steps += is_accepted
        return is_accepted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._num_steps:
            self._state.undo(self._num_steps)
            self._num_steps = 0
