"""Docstrings begin with a verb or the field's noun; pages and messages have none of a few phrases."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("vllm_spec_plugin", "vllm_spec_tools")
CODE = (*PACKAGES, "benchmarks", "loadtests", "models", "tests")
BAD_START = re.compile(r"\s*(What|Of|From|All of|Where|Who|Whose|How|Those)\b")
# Each with the better words.
PHRASES = {
    r"(?<!one )(?<!either )(?<!instead )of vLLM's(?: own)?(?:[,.;:)\"]|\s(?:that|among|to)\b)": "vLLM's",
    r"\bwhat came of\b": "the result of",
    r"\banew\b": "again, new",
    r"\b(?:responses|requests) may end\b": "may finish",
    r"\bthe run is through\b": "is complete",
    r"\bhidden still\b": "still hidden",
    r"\bcan mend\b": "can correct",
    r"\b(?:too|as|so) dear\b": "expensive",
    r"\bfares\b|\bfared\b": "acceptance",
    r"\bfor ever\b": "without end",
    r"\bas far as\b": "if, up to",
    r"\bput (?:it )?in order again\b": "repair",
}
# Tables written from results name the arms as they were measured.
FIGURES = re.compile(r"<!-- figures: .*?<!-- /figures -->", re.DOTALL)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and text of each string that stands alone: docstrings, also those of constants and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def bad_docstrings(source: str) -> list[str]:
    """Returns line and beginning of the docstrings that begin with neither a verb nor a noun."""
    return [f"{line}: {text[:60]}" for line, text in docstrings(ast.parse(source)) if BAD_START.match(text)]


def bad_phrases(text: str) -> list[str]:
    """Returns the phrases found in a text, each with the better words."""
    text = FIGURES.sub("", text)
    found = ((match, better) for phrase, better in PHRASES.items() for match in re.finditer(phrase, text, re.I))
    return [f"{match[0]!r}: better {better}" for match, better in found]


def files(*suffixes: str) -> list[Path]:
    """Returns the pages, configurations and modules that users read."""
    folders = (*PACKAGES, "benchmarks", "configs", "deploy", "docs", "loadtests", "recipes", "tests/matrix")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return [*found, *(path for path in ROOT.glob("*") if path.suffix in suffixes)]


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules
    found = {str(path.relative_to(ROOT)): bad_docstrings(path.read_text()) for path in modules}
    assert not {path: bad for path, bad in found.items() if bad}


def test_a_bad_docstring_is_found() -> None:
    source = 'class A:\n    """What a request got."""\n\n    def f(self):\n        """Of its tokens."""\n'
    source += '\n\nB = 1\n"""All of it."""\n'
    assert sorted(bad_docstrings(source)) == ["2: What a request got.", "5: Of its tokens.", "9: All of it."]
    assert bad_docstrings('"""Whether it drafts."""\n') == []
    assert bad_docstrings('"""Off by default."""\n') == []


def test_pages_and_messages_have_none_of_the_phrases() -> None:
    found = {
        str(path.relative_to(ROOT)): bad_phrases(path.read_text()) for path in files(".md", ".py", ".yaml", ".yml")
    }
    assert len(found) > 400
    assert not {path: bad for path, bad in found.items() if bad}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("draft_model of vLLM's, optimal", 1),
        ("a drafter of vLLM's own to consider", 1),
        ("one of vLLM's, one of vLLM's own drafters, instead of vLLM's.", 0),
        ("Says what came of it.", 1),
        ("Running responses may end for 60 seconds; the engine starts anew.", 2),
        ("Responses may finish; the engine starts again.", 0),
        ("<!-- figures: ratio a.json -->\n| draft_model of vLLM's, optimal |\n<!-- /figures -->", 0),
    ],
)
def test_a_phrase_is_found(text: str, count: int) -> None:
    assert len(bad_phrases(text)) == count
