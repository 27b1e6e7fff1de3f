"""Tokens of a structured output by kind, and their picture."""

import json
import re
from xml.etree import ElementTree

from benchmarks.grammar import END, OUTPUT, OWN, SCHEMA, kinds_of
from benchmarks.token_picture import KINDS, token_picture
from vllm_spec_plugin.models import model_path

SVG = "{http://www.w3.org/2000/svg}"


def test_every_token_is_of_the_output_and_the_models_own_come_once_per_step() -> None:
    found = list(kinds_of(SCHEMA, OUTPUT, model_path("target")))
    assert "".join(text for text, _ in found) == json.dumps(OUTPUT) + END
    kinds = [kind for _, kind in found]
    assert set(kinds) == set(KINDS)
    assert kinds[0] == OWN
    assert kinds.count(OWN) < len(kinds) / 3
    # No draft has more tokens than a step may have.
    drafts = re.findall(r"x+", "".join(" " if kind == OWN else "x" for kind in kinds))
    assert max(map(len, drafts)) <= 16


def test_a_name_that_the_schema_leaves_open_is_the_models_own() -> None:
    found = list(
        kinds_of(
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"a": "bell"},
            model_path("target"),
        )
    )
    assert [text for text, kind in found if kind == OWN][1:3] == ["bel", "l"]


def test_a_picture_has_a_box_per_token_and_a_key() -> None:
    tokens = [{"text": "<{&", "kind": "forced"}, {"text": " " * 80, "kind": "guess"}, {"text": "a", "kind": "own"}]
    root = ElementTree.fromstring(token_picture(tokens))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.get("stroke")]
    colours = [KINDS[kind][0] for kind in ("forced", "guess", "own")]
    assert [box.get("fill") for box in boxes] == [*colours, *(colour for colour, _ in KINDS.values())]
    # A token that does not fit begins a line.
    assert boxes[0].get("y") != boxes[1].get("y")
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words[:2] == ["<{&", "a"]
    assert str(words[2]).startswith("1 forced")
    assert str(words[3]).startswith("0 likely")
