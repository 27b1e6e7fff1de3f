"""The report of a certification."""

import json

import pytest

from tests.unit.tools.certify.cases import check, report
from vllm_spec_tools.certify.report import report_of, verdict
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.report.output import as_json

SAMPLED = check("samples, top-k", p_value=0.3, p_two_samples=1.0, p_chi_square=0.4)
WRONG = check("samples, top-k", "not exact", p_value=1e-9, p_two_samples=0.02, p_chi_square=1e-12)
UNTESTED = check("JSON schema", "not tested", is_required=False)


@pytest.mark.parametrize(
    ("checks", "status", "words"),
    [
        ((check(), SAMPLED), 0, "Exact in all that was tested."),
        ((check(), UNTESTED), 0, "Exact in all that was tested; not tested: JSON schema."),
        ((check(), WRONG), 1, "Not exact: samples, top-k (fixed draft length)."),
        ((check(outcome="not tested"), SAMPLED), 2, "Could not be told: too little to test in greedy."),
        ((check(outcome="not tested"), WRONG), 1, "Not exact: samples, top-k (fixed draft length)."),
        ((check(outcome="not tested", engine="as configured"), check()), 0, "Exact in all that was tested."),
    ],
    ids=["exact", "not all tested", "wrong", "too little", "wrong and too little", "tested elsewhere"],
)
def test_exit_status_and_verdict_follow_the_checks(checks: tuple[Check, ...], status: int, words: str) -> None:
    assert report(*checks).exit_status == status
    assert verdict(report(*checks)) == words


def test_json_has_the_verdict_its_grounds_and_where_it_comes_from() -> None:
    data = json.loads(as_json(report_of(report(check(), WRONG, UNTESTED))))
    assert data["schema"] == 4
    assert data["verdict"] == "not exact"
    assert data["not_tested"] == ["JSON schema"]
    assert data["checks"][1]["p_value"] == 1e-9
    assert data["provenance"]["models"] == {"target": "/models/big"}
