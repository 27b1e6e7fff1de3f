"""Outcomes of drafts at every output position of recorded responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

# Kind of text that repeats most of its prompt.
EDIT = "edit"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
# More than any draft's number of tokens: `draft_length.tokens` is at most as large.
MOST_NODES = len(_DIGITS) - 1


class Verified(NamedTuple):
    """The longest draft for one position, and what verification kept of it.

    Attributes:
        drafted: number of draft tokens; 0 if the proposer had no guess.
        nodes: numbers of the accepted draft tokens, from the first one on: of a chain 0, 1, 2 and so on, of a tree
            the nodes on the accepted path.
    """

    drafted: int
    nodes: tuple[int, ...]

    def first(self, num_tokens: int) -> "Verified":
        """The outcome had only the first `num_tokens` been drafted: acceptance ends where a token is missing."""
        kept = next((i for i, node in enumerate(self.nodes) if node >= num_tokens), len(self.nodes))
        return Verified(min(self.drafted, num_tokens), self.nodes[:kept])


NOTHING = Verified(0, ())


@dataclass(frozen=True)
class Trace:
    """One response.

    Attributes:
        kind: kind of text, such as easy.
        num_prompt_tokens: length of its prompt.
        outcomes: per proposer, per number of output tokens so far, the outcome of the draft that follows them.
    """

    kind: str
    num_prompt_tokens: int
    outcomes: tuple[tuple[Verified, ...], ...]

    @property
    def num_tokens(self) -> int:
        """Output tokens that drafts were recorded for."""
        return len(self.outcomes[0])

    def at(self, proposer: int, position: int, num_tokens: int) -> Verified:
        """The outcome of a proposer's draft of up to `num_tokens` after `position` output tokens."""
        outcomes = self.outcomes[proposer]
        return outcomes[position].first(num_tokens) if position < len(outcomes) else NOTHING

    def to_json(self) -> dict[str, Any]:
        """A digit per position: draft tokens, and accepted ones; a tree's accepted nodes as a list of paths."""
        return {
            "kind": self.kind,
            "prompt_tokens": self.num_prompt_tokens,
            "drafted": ["".join(_DIGITS[one.drafted] for one in outcomes) for outcomes in self.outcomes],
            "accepted": [_packed([one.nodes for one in outcomes]) for outcomes in self.outcomes],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what `to_json` gives."""
        outcomes = []
        for drafted, accepted in zip(values["drafted"], values["accepted"], strict=True):
            if isinstance(accepted, str):
                paths = [tuple(range(_DIGITS.index(digit))) for digit in accepted]
            else:
                paths = [tuple(map(_DIGITS.index, path)) for path in accepted]
            pairs = zip(map(_DIGITS.index, drafted), paths, strict=True)
            outcomes.append(tuple(Verified(count, path) for count, path in pairs))
        return cls(values["kind"], values["prompt_tokens"], tuple(outcomes))


def _packed(paths: Sequence[tuple[int, ...]]) -> str | list[str]:
    if all(path == tuple(range(len(path))) for path in paths):
        return "".join(_DIGITS[len(path)] for path in paths)
    return ["".join(_DIGITS[node] for node in path) for path in paths]
