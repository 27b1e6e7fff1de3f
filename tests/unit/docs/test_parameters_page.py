"""docs/parameters.md has the tables of the fields and of the recorded counts."""

import json

from tests.parameters.page import PAGE, RESULTS, with_tables

RECORDED = json.loads(RESULTS.read_text())


def test_the_page_has_the_tables_of_the_fields_and_of_the_recorded_counts():
    assert PAGE.read_text() == with_tables(PAGE.read_text(), RECORDED), "run python -m tests.e2e.fuzz --page"
