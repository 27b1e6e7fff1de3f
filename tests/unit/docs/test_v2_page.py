"""docs/v2.md is what was found on both versions."""

import json

from tests.engine.v2.page import PAGE, RESULTS, with_tables

RECORDED = json.loads(RESULTS.read_text())


def test_the_page_is_written_from_the_results():
    assert PAGE.read_text() == with_tables(PAGE.read_text(), RECORDED), (
        "run: .venv/bin/python -m tests.engine.v2 --page"
    )
