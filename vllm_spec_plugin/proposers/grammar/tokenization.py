"""Tokenizes drafted texts after a request's text."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_spec_plugin.proposers.grammar.state import GrammarDraft, Kind, Tokenizer
from vllm_spec_plugin.proposers.grammar.vocabulary import Vocabulary

# Texts whose tokens are kept: schemas are few, and their texts recur.
_CACHED = 16_384


class Segment(NamedTuple):
    """A part of a drafted text.

    Attributes:
        text: the text.
        kind: `LIKELY` for forced text, `GUESS` for text that begins with free whitespace.
    """

    text: str
    kind: Kind


class Tokenization:
    """Tokenizes like the target would after its latest token.

    Tokenizers put no token boundary where the target has put one: a text is tokenized with the latest token before it,
    if that stays a token, else alone. SentencePiece adds a space before a text, which is cut off.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Reads the tokenizer's vocabulary.

        Args:
            tokenizer: the target's tokenizer.
        """
        self._tokenizer, self._vocabulary = tokenizer, Vocabulary(tokenizer.pieces())
        self._cached = functools.lru_cache(_CACHED)(self._draft)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens."""
        return self._tokenizer.decode(token_ids)

    def bytes_of(self, token_id: int) -> bytes | None:
        """Returns a token's bytes; None for special and unknown tokens."""
        return self._vocabulary.bytes_of(token_id)

    def draft(self, last_token: int, segments: tuple[Segment, ...]) -> GrammarDraft:
        """Tokenizes a drafted text; the draft is empty if the vocabulary cannot spell it.

        The last token is drafted even if the text that follows may change it: about half of such are accepted.

        Args:
            last_token: the request's latest token.
            segments: the text, in parts.
        """
        return self._cached(last_token, segments)

    def _draft(self, last_token: int, segments: tuple[Segment, ...]) -> GrammarDraft:
        token_ids = self._encode(last_token, "".join(segment.text for segment in segments))
        return GrammarDraft(token_ids, list(self._kinds(token_ids, segments)))

    def _encode(self, last_token: int, text: str) -> list[int]:
        """Returns the tokens of a text after a token; empty if there are none that spell it."""
        before = (self._vocabulary.bytes_of(last_token) or b"").decode(errors="ignore")
        for context in (before, "", "\n"):
            token_ids = self._tokenizer.encode(context + text)
            spelled, wanted = self._vocabulary.join(token_ids), (context + text).encode()
            if spelled is None or spelled not in (wanted, b" " + wanted):
                continue
            start = len(spelled) - len(text.encode())
            for token in token_ids if start else ():
                start -= len(self._vocabulary.bytes_of(token) or b"")
                token_ids = token_ids[1:]
                if start <= 0:
                    break
            if not start:
                return token_ids
        return []

    def _kinds(self, token_ids: Sequence[int], segments: Sequence[Segment]) -> Iterator[Kind]:
        """Returns the kind of each token: of its least certain byte, or `FORCED` if no other token is possible."""
        kinds = [segment.kind for segment in segments for _ in segment.text.encode()]
        text, start = "".join(segment.text for segment in segments).encode(), 0
        for token in token_ids:
            end = start + len(self._vocabulary.bytes_of(token) or b"")
            kind = max(kinds[start:end], default=Kind.GUESS)
            if kind == Kind.LIKELY:
                forced_end = next((i for i in range(end, len(kinds)) if kinds[i] != Kind.LIKELY), len(kinds))
                if self._vocabulary.has_one_way(text[start:forced_end]):
                    kind = Kind.FORCED
            yield kind
            start = end
