"""`mkdocs.yml` lists every page, and only pages that exist; recipes are valid, and each is marked as not run."""

import re
from pathlib import Path

import pytest

from tests.unit.cli.running import run

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "recipes"


def test_each_page_is_in_the_navigation_and_exists():
    # Its tag for a Python function is not plain YAML.
    nav = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert not [page for page in nav if not (ROOT / page).is_file()]
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(nav)


def test_the_modules_of_the_api_page_exist():
    modules = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert modules
    assert all((ROOT / f"{name.replace('.', '/')}.py").is_file() for name in modules)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_recipe_is_valid_listed_and_marked_as_not_run(path):
    assert run("check", path).exit_code == 0
    assert "NOT RUN by this project" in path.read_text()
    assert f"]({path.name})" in (RECIPES / "README.md").read_text()
