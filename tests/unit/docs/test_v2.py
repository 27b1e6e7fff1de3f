"""docs/v2.md is what was found on both versions."""

import json

from tests.engine.v2.drafters import DRAFTERS
from tests.engine.v2.page import KINDS, PAGE, RESULTS, is_right, with_tables

RECORDED = json.loads(RESULTS.read_text())


def test_the_page_is_written_from_the_results():
    assert PAGE.read_text() == with_tables(PAGE.read_text(), RECORDED), (
        "run: .venv/bin/python -m tests.engine.v2 --page"
    )


def test_both_versions_have_results_of_drafters_that_exist():
    assert list(RECORDED) == ["0.32.0", "0.33.0"]
    assert all(found["drafters"].keys() <= DRAFTERS.keys() for found in RECORDED.values())


def test_drafts_were_accepted_and_rejected_where_outputs_are_right():
    cells = {
        (version, name, kind): row[kind]
        for version, found in RECORDED.items()
        for name, row in found["drafters"].items()
        for kind in KINDS
        if name != "none"
    }
    assert not [at for at, cell in cells.items() if is_right(cell) and not (cell["accepted"] and cell["rejected"])]
