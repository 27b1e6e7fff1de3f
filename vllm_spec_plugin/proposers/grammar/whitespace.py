"""The style of a JSON text's whitespace."""

import re

# Each finds the latest example.
_COLON = re.compile(r'.*":([ \t\n]*)\S', re.DOTALL)
_COMMA = re.compile(r'.*["\d}\]el],([ \t]*)"', re.DOTALL)
# A bracket at the end of a line, with the indentation of its line and of the next.
_OPENED = re.compile(r"(?:.*\n)?([ \t]*)[^\n]*[{\[]\n([ \t]*)\S", re.DOTALL)
_BLANK = " \t\n"


class Style:
    """Reads the whitespace after `:` and `,` from a text, and its indentation.

    Before a text has any, keys are followed by one space, and all is on one line.
    """

    def __init__(self, text: str) -> None:
        """Reads the style; the latest example of each kind counts.

        Args:
            text: the end of the request's output.
        """
        colon, comma, opened = _COLON.match(text), _COMMA.match(text), None
        self._colon, self._comma = colon[1] if colon else " ", comma[1] if comma else " "
        if "\n" in text:
            opened = _OPENED.match(text)
        # Indentation per level; None if the text is on one line.
        self._unit: str | None = opened[2][len(opened[1]) :] if opened else None

    def before(self, text: str, char: str) -> str:
        """Returns the whitespace that is missing between a text and a character that follows it.

        Args:
            text: the end of the request's output, with what is drafted.
            char: the character: `,` and `:` have no whitespace before them, brackets close an indented block.
        """
        if char in ",:":
            return ""
        stem = text.rstrip(_BLANK)
        given, wanted = text[len(stem) :], self._between(stem, char in "}]")
        if wanted.startswith(given):
            return wanted[len(given) :]
        # Many vocabularies have tokens of a space and what follows, so an odd indentation lacks its last space.
        return " " if given[:1] == "\n" and len(given) % 2 == 0 else ""

    def _between(self, stem: str, closes: bool) -> str:
        """Returns the whitespace between two characters."""
        last = stem[-1:]
        if last == ":":
            return self._colon
        if self._unit is None:
            return self._comma if last == "," else ""
        line = stem[stem.rfind("\n") + 1 :] if "\n" in stem else ""
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if closes:
            return "\n" + indent[: max(len(indent) - len(self._unit), 0)]
        return "\n" + indent + (self._unit if last in "{[" else "")
