"""Draws a text with its tokens coloured by kind, as SVG."""

from collections import Counter
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

# Kinds in the order of the key, with their colours and meanings.
KINDS = {
    "forced": ("#74c476", "forced: no other token is allowed"),
    "likely": ("#c7e9c0", "likely: the text is forced"),
    "guess": ("#fdd49e", "guess: whitespace is free"),
    "own": ("#ffffff", "the model's own, one per step"),
}
_CHAR, _LINE, _MARGIN, _SIZE = 9.0, 30, 12, 15
_CHARS_PER_LINE = 76


def token_picture(tokens: Sequence[Mapping[str, str]]) -> str:
    """Returns an SVG of tokens.

    Args:
        tokens: each with its `text` and one of `KINDS` as its `kind`.
    """
    parts, x, y = list[str](), 0, 0
    for token in tokens:
        text = token["text"]
        if x and x + len(text) > _CHARS_PER_LINE:
            x, y = 0, y + 1
        parts.append(_box(text, x, y, KINDS[token["kind"]][0]))
        x += len(text)
    counts = Counter(token["kind"] for token in tokens)
    for row, (kind, (colour, meaning)) in enumerate(KINDS.items()):
        words = f"{counts[kind]} {meaning}"
        parts.append(_box("  ", 40 * (row % 2), y + 1.5 + row // 2, colour))
        parts.append(_text(words, _MARGIN + _CHAR * (40 * (row % 2) + 3), _top(y + 1.5 + row // 2)))
    width, height = 2 * _MARGIN + _CHAR * _CHARS_PER_LINE, _top(y + 3.5) + _MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
    head += f'height="{height:g}" font-family="monospace" font-size="{_SIZE}" xml:space="preserve">'
    title = "<title>Tokens of a JSON output by kind</title>"
    paper = f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    return "\n".join([head, title, paper, *parts, "</svg>"]) + "\n"


def _top(line: float) -> float:
    return _MARGIN + _LINE * line


def _box(text: str, column: float, line: float, colour: str) -> str:
    x, width = _MARGIN + _CHAR * column, _CHAR * len(text)
    box = f'<rect x="{x:g}" y="{_top(line):g}" width="{width:g}" height="24" rx="3" fill="{colour}" stroke="#737373"/>'
    return box + _text(text, x, _top(line))


def _text(text: str, x: float, top: float) -> str:
    """Returns text whose characters have equal widths in every font."""
    if not text.strip():
        return ""
    # Spaces at the ends have no width in some programs.
    start = len(text) - len(text.lstrip())
    text, x = text.strip(), x + _CHAR * start
    size = f'textLength="{_CHAR * len(text):g}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:g}" y="{top + 17:g}" {size}>{escape(text)}</text>'
