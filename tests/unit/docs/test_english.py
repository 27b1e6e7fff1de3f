"""Docstrings begin with a verb or the field's noun; pages and messages have none of a few phrases."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("vllm_spec_plugin", "vllm_spec_tools", "benchmarks", "loadtests", "models", "tests")
READ = ("vllm_spec_plugin", "vllm_spec_tools", "benchmarks", "configs", "deploy", "docs", "loadtests", "recipes")
BAD_START = re.compile(r"\s*(What|Of|From|All of|Where|Who|Whose|How|Those)\b")
BAD_PHRASE = re.compile(
    r"(?<!one )(?<!either )(?<!instead )of vLLM's(?: own)?(?:[,.;:)\"]|\s(?:that|among|to)\b)|\bwhat came of\b|\banew\b"
    r"|\b(?:responses|requests) may end\b|\bthe run is through\b|\bhidden still\b|\bcan mend\b|\b(?:too|as|so) dear\b"
    r"|\bfares\b|\bfared\b|\bfor ever\b|\bas far as\b|\bput (?:it )?in order again\b",
    re.IGNORECASE,
)
# Tables written from results name the arms as they were measured.
FIGURES = re.compile(r"<!-- figures: .*?<!-- /figures -->", re.DOTALL)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """Also those of constants and attributes: each string that stands alone."""
    bad = []
    for path in (path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if BAD_START.match(text):
                    bad.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text[:60]}")
    assert not bad


def test_pages_and_messages_have_none_of_the_phrases() -> None:
    found = [path for folder in READ for path in (ROOT / folder).rglob("*")] + [*ROOT.glob("*")]
    texts = {
        path: FIGURES.sub("", path.read_text()) for path in found if path.suffix in (".md", ".py", ".yaml", ".yml")
    }
    assert len(texts) > 400
    assert not [(str(path), match[0]) for path, text in texts.items() for match in BAD_PHRASE.finditer(text)]
