"""`recipes/`: valid files, each listed and marked as not run."""

from pathlib import Path

import pytest

from tests.unit.cli.running import run

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_recipe_is_valid_listed_and_marked_as_not_run(path):
    assert run("check", path).exit_code == 0
    assert "NOT RUN by this project" in path.read_text()
    assert f"]({path.name})" in (RECIPES / "README.md").read_text()


def test_the_page_begins_with_what_was_not_done():
    assert "**None of these was run by this project" in (RECIPES / "README.md").read_text()[:120]
