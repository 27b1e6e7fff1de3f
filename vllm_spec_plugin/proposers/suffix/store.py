"""Texts of requests that have ended, to draft from for those that come later in the same scope."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from vllm_spec_plugin.proposers.suffix import drafting
from vllm_spec_plugin.proposers.suffix.text_tree import TextTree
from vllm_spec_plugin.proposers.suffix.tree import Int32s, Int64s

# A store is that many generations or more.
GENERATIONS = 8
# Of a text that goes on from one that is kept, so many of that one's last tokens are kept again, and matches are
# found again in so many tokens where texts were added.
OVERLAP = 128
# A generation counts as at least so many tokens: what its arrays and books need at least.
_LEAST_CHARGE = 256


@dataclass(eq=False)
class Generation:
    """Texts of one scope that are kept, and dropped, together.

    Attributes:
        scope: of the requests that share them.
        tree: of the texts, each followed by a token of its own that is in no vocabulary.
        num_texts: how many texts there are.
    """

    scope: str
    tree: TextTree
    num_texts: int = 0

    @property
    def charge(self) -> int:
        """Tokens that it counts for."""
        return max(self.tree.num_tokens, _LEAST_CHARGE)


@dataclass
class Place:
    """How far a request's text was matched with a generation.

    Attributes:
        num_texts: of the generation at that time.
        end: how many tokens of the text were taken in.
        at: [2] int64, a node and tokens below it.
    """

    num_texts: int = -1
    end: int = 0
    at: Int64s = field(default_factory=lambda: np.zeros(2, np.int64))


class TextStore:
    """Keeps ended texts per scope, in generations that are each one suffix tree.

    A text is never taken out of a tree: where room is needed, the generation goes that was least recently added to or
    drafted from, whatever its scope, with all of its texts. A generation has at most an eighth of the store's tokens,
    so what goes at a time is never more than that. The beginning of a text that is kept already is not kept again.
    What is kept follows from the order of the calls alone: ranks that are told the same hold the same.

    Attributes:
        num_tokens: what all generations count for.
    """

    def __init__(self, max_tokens: int, vocab_size: int) -> None:
        """An empty store.

        Args:
            max_tokens: most tokens kept over all scopes.
            vocab_size: only tokens below it are drafted; others may occur in texts.
        """
        self._max_tokens, self._most = max_tokens, max(max_tokens // GENERATIONS, 1)
        self._vocab_size = vocab_size
        self.clear()

    def clear(self) -> None:
        """Drops all texts."""
        # Each scope's generations, the oldest first, and those of all, the least recently used first.
        self._scopes: dict[str, list[Generation]] = {}
        self._used: OrderedDict[Generation, None] = OrderedDict()
        self.num_tokens = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the trees, in bytes."""
        return sum(generation.tree.num_bytes for generation in self._used)

    def generations(self, scope: str) -> list[Generation]:
        """The generations of a scope, the oldest first."""
        return self._scopes.get(scope, [])

    def used(self, generation: Generation) -> None:
        """Notes that a draft was taken from it."""
        self._used.move_to_end(generation)

    def add(self, scope: str, token_ids: Int32s) -> None:
        """Takes in a text that has ended.

        Args:
            scope: of the request.
            token_ids: [num_tokens] int32, prompt and output. Of one that is too long the end is kept.
        """
        # Negative tokens end texts here.
        text = np.where(token_ids < 0, -1, token_ids).astype(np.int32)
        known = self._known(scope, text)
        if known == len(text):
            return
        text = text[max(known - OVERLAP, 0) :][-(self._most - 1) :] if self._most > 1 else text[:0]
        if not len(text):
            return
        generation = self._room(scope, len(text) + 1)
        self.num_tokens -= generation.charge
        generation.tree.extend(np.append(text, np.int32(-2 - generation.num_texts)).astype(np.int32))
        generation.num_texts += 1
        self.num_tokens += generation.charge
        while self.num_tokens > self._max_tokens and len(self._used) > 1:
            self._drop(next(iter(self._used)))

    def match(self, generation: Generation, place: Place, own: TextTree) -> int:
        """Matches the end of a request's text with a generation.

        Args:
            generation: of the request's scope.
            place: how far the text was matched; brought up to date.
            own: the tree of the request's own text.

        Returns:
            How many of the text's last tokens match.
        """
        end = own.num_tokens
        if place.num_texts != generation.num_texts:
            # Longer matches may be there now.
            place.num_texts, place.end, place.at[:] = generation.num_texts, max(end - OVERLAP, 0), 0
        length = drafting.match(*generation.tree.arrays, place.at, own.arrays.tokens, place.end, end)
        place.end = end
        return length

    def _known(self, scope: str, text: Int32s) -> int:
        """How many tokens at the beginning of a text are kept already, in one generation or in several that overlap."""
        known = 0
        while True:
            begin = max(known - OVERLAP, 0)
            best, generation = max(
                ((drafting.longest_from(*other.tree.arrays, text, begin), other) for other in self.generations(scope)),
                key=lambda found: found[0],
                default=(0, None),
            )
            if generation is None or best <= known:
                return known
            known = best
            self.used(generation)

    def _room(self, scope: str, num_tokens: int) -> Generation:
        """The scope's newest generation, or a new one where that has no room."""
        generations = self._scopes.setdefault(scope, [])
        if not generations or generations[-1].tree.num_tokens + num_tokens > self._most:
            generations.append(Generation(scope, TextTree(self._vocab_size)))
            self.num_tokens += generations[-1].charge
        self._used[generations[-1]] = None
        self.used(generations[-1])
        return generations[-1]

    def _drop(self, generation: Generation) -> None:
        del self._used[generation]
        self.num_tokens -= generation.charge
        others = self._scopes[generation.scope]
        others.remove(generation)
        if not others:
            del self._scopes[generation.scope]
