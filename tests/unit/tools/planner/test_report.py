"""The report says the answer first, and every figure."""

import json
from collections.abc import Sequence
from dataclasses import replace

from tests.unit.tools.planner.cases import PROVENANCE, plan
from vllm_spec_tools.planner.report import remarks, report_of, tables
from vllm_spec_tools.planner.results import Results
from vllm_spec_tools.report.output import as_json


def rows(results: Results, title: str) -> list[Sequence[str]]:
    return list(next(section for section in tables(results) if section.title.startswith(title)).rows)


def test_effect_and_errors_are_those_of_the_verification() -> None:
    results = plan()
    assert rows(results, "6. Effect")[-1] == ["cascade, measured", "1.90x", "1.50x"]
    best = results.choice.best[1]
    (first, _) = rows(results, "Verification: cascade")
    assert first[4] == f"{best.speedup:.2f}"
    assert first[5] == f"{best.speedup / 1.9 - 1:+.0%}"
    assert rows(results, "7. Times")[0][1:3] == ["30.0/30.0/30.0", "30.0/30.0/30.0"]


def test_a_machine_that_was_not_quiet_is_said_at_once() -> None:
    busy = replace(plan(), others=(0.5, 0.9, 0.1))
    assert any(text.startswith("Other processes used 0.50 cores meanwhile, so") for text in remarks(busy))
    assert not any("Other processes" in text for text in remarks(plan()))


def test_json_has_everything() -> None:
    results = plan()
    found = json.loads(as_json(report_of(results, PROVENANCE)))
    assert found["answer"]["is_on"]
    assert found["choice"] == {"candidate": "cascade", "tokens": 4}
    assert found["provenance"]["model"] == "/models/big"
    assert {one["candidate"] for one in found["acceptance"]} == {"suffix", "draft_model", "cascade"}
    assert [one["concurrency"] for one in found["verified"]] == [1, 8]
    assert found["verified"][0]["speedup"]["median"] > 1.8
    assert len(found["forecasts"][1]["levels"][0]["all"]) == 4
