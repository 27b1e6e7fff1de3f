"""Whitespace of JSON as the text so far has it."""

import json
import re

import pytest

from vllm_spec_plugin.proposers.grammar.whitespace import Style

VALUE = {"name": "a, b: c", "sizes": [1, 2, {"deep": {"deeper": [True, None]}}], "last": {"x": "y"}}


@pytest.mark.parametrize(
    "options", [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"indent": 1}], ids=str
)
def test_a_text_in_one_style_is_continued_in_it(options: dict[str, object]) -> None:
    """Checks each place from the second object on, outside of strings."""
    text = json.dumps([VALUE] * 3, **options)  # type: ignore[arg-type]
    inside = {i for found in re.finditer(r'"[^"]*"', text) for i in range(found.start() + 1, found.end())}
    start, missed = text.index("last") + 12, []
    for i in range(start, len(text)):
        if i in inside or text[i].isspace() or text[i] in "1ruel":
            continue
        stem = text[:i].rstrip()
        wanted = text[len(stem) : i]
        # "indent" 1 looks like the space that some tokens begin with.
        for given in {"", wanted} if wanted[:1] != "\n" else {"", wanted[:-1], wanted}:
            if Style(text[:start]).before(stem + given, text[i]) != wanted[len(given) :]:
                missed.append((text[max(i - 10, 0) : i + 1], given))
    # Numbers of a list on one line have the style of commas before keys.
    assert not missed


def test_before_any_example_there_is_one_space_after_a_colon() -> None:
    assert Style("").before('{"a":', '"') == " "
    assert Style("").before("", "{") == ""
    assert Style("").before('{"a"', ":") == ""
    assert Style("{").before("{", '"') == ""
