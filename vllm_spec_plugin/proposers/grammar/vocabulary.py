"""The bytes of the vocabulary's tokens."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Vocabulary:
    """Knows the bytes of each token: of byte-level BPE, SentencePiece, and vocabularies of plain text.

    Memory: about 150 bytes per token.
    """

    def __init__(self, pieces: Mapping[str, int]) -> None:
        """Reads the vocabulary.

        Args:
            pieces: ids of all tokens but special ones, by the vocabulary's form of their text.
        """
        read = _reader(pieces)
        self._bytes = {token_id: read(piece) for piece, token_id in pieces.items()}
        self._sorted = sorted(set(self._bytes.values()) - {b""})
        self._known = frozenset(self._sorted)
        self._longest = max(map(len, self._sorted), default=0)

    def bytes_of(self, token_id: int) -> bytes | None:
        """Returns a token's bytes; None for special and unknown tokens."""
        return self._bytes.get(token_id)

    def join(self, token_ids: Iterable[int]) -> bytes | None:
        """Returns the bytes of several tokens; None if one is special or unknown."""
        parts = [self._bytes.get(token_id) for token_id in token_ids]
        return None if None in parts else b"".join(filter(None, parts))

    def has_one_way(self, text: bytes) -> bool:
        """Whether one token alone is a prefix of the text, and none goes beyond it.

        Two tokens with the same bytes count as one; no tokenizer of the supported kinds has such.
        """
        at = bisect_left(self._sorted, text)
        if at < len(self._sorted) and self._sorted[at] == text:
            at += 1
        if at < len(self._sorted) and self._sorted[at].startswith(text):
            return False
        lengths = range(1, min(self._longest, len(text)) + 1)
        return sum(text[:length] in self._known for length in lengths) == 1


def _reader(pieces: Mapping[str, int]) -> Callable[[str], bytes]:
    """Returns the function from a vocabulary's pieces to bytes."""
    if "\u0120" in pieces and _SPACE not in pieces:
        table = {ord(char): byte for byte, char in enumerate(_byte_level())}

        def byte_level(piece: str) -> bytes:
            # Added tokens have plain text.
            values = [table.get(ord(char)) for char in piece]
            return piece.encode() if None in values else bytes(value for value in values if value is not None)

        return byte_level

    def sentence_piece(piece: str) -> bytes:
        found = _BYTE.fullmatch(piece)
        return bytes([int(found[1], 16)]) if found else piece.replace(_SPACE, " ").encode(errors="surrogatepass")

    return sentence_piece


def _byte_level() -> str:
    """Returns the characters that stand for the 256 bytes: printable ones for themselves, others from 256 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return "".join(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))
