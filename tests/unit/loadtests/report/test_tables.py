"""Figures as the texts of tables."""

import dataclasses

from loadtests.report.tables import by_scenario, counted, failures
from loadtests.stream.timing import ErrorKind
from tests.unit.loadtests.report.results import MIXED, SERVER, failed, result


def test_every_scenario_has_a_row_below_all() -> None:
    table = by_scenario(MIXED)
    assert [name for name, _ in table.rows] == ["all", "chat", "edit"]
    assert {len(cells) for _, cells in table.rows} == {len(table.columns)} == {sum(span for _, span in table.groups)}
    cells = dict(table.rows)
    assert cells["chat"] == ["16", "2", *["200"] * 3, *["50.0"] * 3, *["1,200"] * 3, "100", "1.91", "17.5"]
    assert cells["edit"][:5] == ["14", "0", "400", "400", "400"]
    assert cells["all"][2:5] == ["300", "400", "400"]


def test_what_is_not_known_is_a_dash() -> None:
    rows = dict(by_scenario(result({"chat": [failed(0)]})).rows)
    assert rows["chat"] == ["1", "1", *["-"] * 12]
    assert dict(by_scenario(result({})).rows)["all"] == ["0", "0", *["-"] * 12]


def test_failures_are_told_by_kind_with_the_first_ones_message() -> None:
    kinds = [
        failed(0, ErrorKind.CUT, ""),
        failed(1, ErrorKind.HTTP_5XX, "first"),
        failed(2, ErrorKind.HTTP_5XX, "second"),
    ]
    found = [(one.kind, one.requests, one.share, one.example) for one in failures(result({"chat": kinds}))]
    assert found == [("http_5xx", "2", "66.7%", "first"), ("cut", "1", "33.3%", "-")]


def test_the_servers_counts_stand_beside_the_clients() -> None:
    found = {name: texts for name, *texts in counted(MIXED)}
    assert found["output tokens"] == ["588", "5,100"]
    assert found["acceptance rate"] == ["", "62.5%"]
    unknown = dataclasses.replace(MIXED, server=dataclasses.replace(SERVER, drafts=None, kv_usage=None))
    found = {name: texts for name, *texts in counted(unknown)}
    assert (found["drafts verified"], found["KV cache in use at the end"]) == (["", "-"], ["", "-"])
    assert counted(dataclasses.replace(MIXED, server=None)) == []
