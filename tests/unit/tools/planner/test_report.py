"""The report says the answer first, and every figure."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from tests.unit.tools.planner.cases import PROVENANCE, cheap, dear, plan
from vllm_spec_plugin.tools.planner.report.page import remarks, report_of, tables
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.report import Chart, write
from vllm_spec_plugin.tools.report.output import as_json

TITLES = [
    "1. The target's step",
    "2. Verification: ms of a step by the tokens in it",
    "3. Drafting: ms per step",
    "4. Acceptance",
    "5. Memory",
    "6. Effect",
    "7. Times of a request without and with cascade, ms",
    "Prediction",
    "Verification: cascade against no speculation",
    "What would change the answer: cascade",
]


def rows(results: Results, title: str) -> list[Sequence[str]]:
    return list(next(section for section in tables(results) if section.title == title).rows)


def printed(results: Results, width: int = 100) -> str:
    written = io.StringIO()
    write(report_of(results, PROVENANCE), terminal=Console(file=written, width=width))
    return written.getvalue()


def test_seven_answers_then_the_prediction_its_verification_and_what_would_change_it() -> None:
    found = list(tables(plan()))
    assert [section.title for section in found] == TITLES
    for section in found:
        assert section.rows
        assert all(len(row) == len(section.header) for row in section.rows)


def test_what_was_measured_is_shown() -> None:
    results = plan()
    assert rows(results, TITLES[0]) == [("1", f"{1e3 * cheap(1):.2f}", "99.9"), ("8", f"{1e3 * cheap(8):.2f}", "793.7")]
    assert rows(results, TITLES[1])[-1] == ("5", "10.05 (1.00x)", "10.40 (1.03x)")
    assert rows(results, TITLES[2])[1] == ("draft_model", "0.10 + 0.50 K", "0.10 + 0.50 K")
    name, workload, drafts, alpha, length, per_step = rows(results, TITLES[3])[2]
    assert (name, workload, drafts, alpha) == ("draft_model", "edit", "100", "80 80 80 80")
    assert length == per_step == "3.36"
    assert rows(results, TITLES[4])[2] == ("draft_model", "976.56 KiB (25.0%)", "256 B (25.0%)")
    assert rows(results, TITLES[4])[3][1] == "not known"


def test_effect_and_errors_are_those_of_the_verification() -> None:
    results = plan()
    assert rows(results, TITLES[5])[-1] == ("cascade, measured", "1.90x", "1.50x")
    best = results.choice.best[1]
    (first, _) = rows(results, TITLES[8])
    assert first[4] == f"{best.speedup:.2f}"
    assert first[5] == f"{best.speedup / 1.9 - 1:+.0%}"
    assert rows(results, TITLES[6])[0][1:3] == ("30.00", "30.00")


def test_the_answer_comes_first() -> None:
    lines = [line for line in printed(plan()).splitlines() if line.strip()]
    assert lines[2].startswith("Switch it on: cascade, up to 4 tokens: 1.90x at 1 stream, 1.50x at 8 (measured;")
    assert "Something was not measured." in printed(plan())


def test_without_a_verification_what_was_not_measured_is_left_out() -> None:
    results = plan(verify=dear, ratios={})
    titles = [section.title for section in tables(results)]
    assert len(titles) == len(TITLES) - 1
    assert "Leave it off" in printed(results)
    assert "1.00x (off)" in printed(results)
    assert "Expected, not measured" in printed(results)


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
    assert {one["candidate"] for one in found["acceptance"]} == {"ngram", "draft_model", "cascade"}
    assert [one["concurrency"] for one in found["verified"]] == [1, 8]
    assert found["verified"][0]["speedup"]["median"] > 1.8
    assert len(found["forecasts"][1]["levels"][0]["all"]) == 4


def test_charts_have_predictions_and_what_was_measured() -> None:
    speedup, steps = report_of(plan(), PROVENANCE).charts
    assert isinstance(speedup, Chart)
    assert isinstance(steps, Chart)
    names = ["no speculation", "ngram, predicted", "draft_model, predicted", "cascade, predicted", "cascade, measured"]
    assert [line.name for line in speedup.lines] == names
    assert [line.name for line in steps.lines] == ["1 stream", "8 streams"]
    (without, _) = report_of(plan(ratios={}), PROVENANCE).charts
    assert isinstance(without, Chart)
    assert len(without.lines) == len(names) - 1


def test_one_level_needs_no_word_on_means() -> None:
    assert any("each of which counts alike" in text for text in remarks(plan()))
    assert not any("counts alike" in text for text in remarks(replace(plan(), levels=(1,))))
