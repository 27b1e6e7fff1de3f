"""Keeps finished requests' texts, for drafts of later requests of the same scope."""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from vllm_spec_plugin.proposers.suffix import drafting
from vllm_spec_plugin.proposers.suffix.text_tree import TextTree
from vllm_spec_plugin.proposers.suffix.tree import Int32s, Int64s

# Minimum number of generations in a full store.
GENERATIONS = 8
# Number of last tokens that are kept again for a text that continues a kept one, and that are matched again after texts
# were added.
OVERLAP = 128
# Minimum charge of a generation, in tokens, for its arrays and bookkeeping.
_MIN_CHARGE = 256


@dataclass(eq=False)
class Generation:
    """Texts of one scope that are dropped together.

    Attributes:
        scope: scope of the requests that share them.
        tree: suffix tree of the texts, each followed by a token of its own that is in no vocabulary.
        num_texts: number of texts.
    """

    scope: str
    tree: TextTree
    num_texts: int = 0

    @property
    def charge(self) -> int:
        """Share of the store's capacity, in tokens."""
        return max(self.tree.num_tokens, _MIN_CHARGE)


@dataclass
class Match:
    """The longest match of a request's text with a generation.

    Attributes:
        num_texts: number of the generation's texts when it was found.
        end: number of matched tokens of the request's text.
        at: [2] int64, node of the match, and tokens below it.
    """

    num_texts: int = -1
    end: int = 0
    at: Int64s = field(default_factory=lambda: np.zeros(2, np.int64))


class TextStore:
    """Keeps finished texts per scope, in generations with one suffix tree each.

    Texts are not removed from a tree. A full store drops the generation that was least recently extended or used, of
    any scope, with all of its texts; that is at most an eighth of the store's tokens. The beginning of a text that is
    kept already is not kept again. All of this depends on the order of calls only, so that ranks with the same calls
    have the same texts.

    Attributes:
        num_tokens: total charge of all generations.
    """

    def __init__(self, max_tokens: int, vocab_size: int) -> None:
        """Creates an empty store.

        Args:
            max_tokens: maximum kept tokens, all scopes together.
            vocab_size: size of the vocabulary; only tokens below are drafted, others may occur in texts.
        """
        self._max_tokens, self._max_generation = max_tokens, max(max_tokens // GENERATIONS, 1)
        self._vocab_size = vocab_size
        self.clear()

    def clear(self) -> None:
        """Drops all texts."""
        # Generations by scope, the oldest first; and of all scopes, the least recently used first.
        self._scopes: dict[str, list[Generation]] = {}
        self._used: OrderedDict[Generation, None] = OrderedDict()
        self.num_tokens = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the trees, in bytes."""
        return sum(generation.tree.num_bytes for generation in self._used)

    def generations(self, scope: str) -> list[Generation]:
        """Returns the generations of a scope, the oldest first."""
        return self._scopes.get(scope, [])

    def used(self, generation: Generation) -> None:
        """Marks a generation as the most recently used."""
        self._used.move_to_end(generation)

    def add(self, scope: str, token_ids: Int32s) -> None:
        """Adds a finished text.

        Args:
            scope: scope of the request.
            token_ids: [num_tokens] int32, prompt and output; a text that is too long is cut at the beginning.
        """
        # Negative tokens end texts here.
        text = np.where(token_ids < 0, -1, token_ids).astype(np.int32)
        known = self._known(scope, text)
        if known == len(text):
            return
        text = text[max(known - OVERLAP, 0) :][-(self._max_generation - 1) :] if self._max_generation > 1 else text[:0]
        if not len(text):
            return
        generation = self._room(scope, len(text) + 1)
        self.num_tokens -= generation.charge
        generation.tree.extend(np.append(text, np.int32(-2 - generation.num_texts)).astype(np.int32))
        generation.num_texts += 1
        self.num_tokens += generation.charge
        while self.num_tokens > self._max_tokens and len(self._used) > 1:
            self._drop(next(iter(self._used)))

    def match(self, generation: Generation, match: Match, own: TextTree) -> int:
        """Matches the suffix of a request's text with a generation.

        Args:
            generation: generation of the request's scope.
            match: earlier match of the text; updated.
            own: tree of the request's text.

        Returns:
            Length of the match, in tokens.
        """
        end = own.num_tokens
        if match.num_texts != generation.num_texts:
            # New texts may have longer matches.
            match.num_texts, match.end, match.at[:] = generation.num_texts, max(end - OVERLAP, 0), 0
        length = drafting.match(*generation.tree.arrays, match.at, own.arrays.tokens, match.end, end)
        match.end = end
        return length

    def _known(self, scope: str, text: Int32s) -> int:
        """Returns the number of tokens at the beginning of a text that are kept already, in overlapping generations.

        Each generation must add `OVERLAP` tokens or the rest of the text, so that the time is linear in its length.
        """
        known = 0
        while known < len(text):
            begin = max(known - OVERLAP, 0)
            best, generation = max(
                ((drafting.longest_from(*other.tree.arrays, text, begin), other) for other in self.generations(scope)),
                key=lambda found: found[0],
                default=(0, None),
            )
            if generation is None or best < min(known + OVERLAP, len(text)):
                break
            known = best
            self.used(generation)
        return known

    def _room(self, scope: str, num_tokens: int) -> Generation:
        """Returns the scope's newest generation, or a new one if that is full."""
        generations = self._scopes.setdefault(scope, [])
        if not generations or generations[-1].tree.num_tokens + num_tokens > self._max_generation:
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
