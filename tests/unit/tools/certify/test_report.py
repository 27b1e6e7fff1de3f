"""The report of a certification."""

import dataclasses
import json

import pytest

from tests.unit.tools.certify.cases import check, report
from vllm_spec_tools.certify.report import report_of, sentences, verdict
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.certify.subject import AS_GIVEN, PLAIN
from vllm_spec_tools.report.output import as_json

SAMPLED = check("samples, top-k", p_value=0.3, p_two_samples=1.0, smallest_fault=0.05)
WRONG = check("samples, top-k", "not exact", p_value=1e-9, p_two_samples=0.02)
NO_JSON = check("JSON schema", "not tested", is_required=False)
ALONE = check("samples, top-k", engine=PLAIN, p_value=0.4)
FEW = check("samples, top-k", "not tested", AS_GIVEN, p_value=1.0)
AGAIN = check(engine=AS_GIVEN)


@pytest.mark.parametrize(
    ("checks", "status", "words"),
    [
        ((ALONE, check(), SAMPLED, AGAIN), 0, "Exact in 3 of 3 checks."),
        ((check(), NO_JSON), 0, "Exact in 1 of 2 checks. Not tested at all: JSON schema."),
        ((check(), WRONG, FEW), 1, "Not exact: samples, top-k (random draft lengths)."),
        ((check(outcome="not tested"), SAMPLED), 2, "Could not be told: too little to test in greedy."),
        ((check(outcome="not tested"), WRONG), 1, "Not exact: samples, top-k (random draft lengths)."),
        ((ALONE, check(), FEW, AGAIN), 2, "Could not be told: too little to test in samples, top-k."),
        (
            (check(), SAMPLED, AGAIN, FEW),
            3,
            "Exact in 3 of 4 checks. Not tested as configured, but with random draft lengths only: samples, top-k.",
        ),
        (
            (
                check(),
                NO_JSON,
                check(outcome="not tested", engine=AS_GIVEN),
                dataclasses.replace(NO_JSON, engine=AS_GIVEN),
            ),
            3,
            "Exact in 1 of 4 checks. Not tested as configured, but with random draft lengths only: greedy. "
            "Not tested at all: JSON schema.",
        ),
    ],
)
def test_exit_status_and_verdict_follow_the_checks(checks: tuple[Check, ...], status: int, words: str) -> None:
    assert report(*checks).exit_status == status
    assert verdict(report(*checks)) == words


def test_json_has_the_verdict_its_grounds_and_where_it_comes_from() -> None:
    data = json.loads(as_json(report_of(report(check(), WRONG, NO_JSON))))
    assert data["schema"] == 5
    assert (data["verdict"], data["exit_status"]) == ("not exact", 1)
    assert data["not_tested"] == ["JSON schema"]
    assert data["checks"][1]["p_value"] == 1e-9
    assert data["provenance"]["models"] == {"target": "/models/big"}
    made = report_of(report(check(), SAMPLED, AGAIN, FEW))
    data = json.loads(as_json(made))
    assert (data["verdict"], data["not_tested_as_configured"]) == ("not tested as configured", ["samples, top-k"])
    assert [row[2] for row in made.tables[0].rows] == ["exact", "exact", "exact", "not tested as configured"]


def test_a_report_says_what_it_would_have_found_and_asks_for_more_time_where_that_is_little() -> None:
    weak = check("samples, seeds", p_value=1.0, p_two_samples=1.0, smallest_fault=0.3)
    told = sentences(report(check(), SAMPLED, weak))
    assert (
        "Samples, random draft lengths: 1,200 outputs per setting. They show with a probability of 95% if 5% (30% in "
        "the weakest setting) of the draft tokens are output without verification."
    ) in told
    assert "The power is low in samples, seeds: allow more time, such as --minutes 8." in told
    blind = check("samples, seeds", p_value=1.0, p_two_samples=1.0)
    told = sentences(report(check(), SAMPLED, blind))
    assert any("5% (not even all in the weakest setting)" in sentence for sentence in told)
    assert any("power is low in samples, seeds" in sentence for sentence in told)
    assert not any("power is low" in sentence for sentence in sentences(report(check(), SAMPLED, FEW)))
