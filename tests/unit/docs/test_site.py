"""`mkdocs.yml` lists every page, and only pages that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_page_is_in_the_navigation_and_exists():
    # Its tag for a Python function is not plain YAML.
    nav = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert not [page for page in nav if not (ROOT / page).is_file()]
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(nav)


def test_the_modules_of_the_api_page_exist():
    modules = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert modules
    assert all((ROOT / f"{name.replace('.', '/')}.py").is_file() for name in modules)
