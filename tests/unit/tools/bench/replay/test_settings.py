"""Policies in settings, and what their mechanisms gain."""

import statistics

from tests.unit.tools.bench.replay.cases import recording
from vllm_spec_plugin.tools.bench.arm_spec import NONE
from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS, ablate
from vllm_spec_plugin.tools.bench.replay.report import gains_report, rates_report
from vllm_spec_plugin.tools.bench.replay.settings import OFF, Sizes, arms_of, replay
from vllm_spec_plugin.tools.report import Measurements

SIZES = Sizes(40, 30, (0, 1))


def test_the_policy_is_compared_with_none_fixed_lengths_and_each_proposer_alone() -> None:
    one = recording()
    arms = {arm.name: arm for arm in arms_of(one)}
    optimal = [name for name in arms if name.startswith("optimal")]
    assert optimal == ["optimal", "optimal, ngram", "optimal, draft_model"]
    assert {NONE, OFF, "fixed K = 4", "fixed K = 4, draft_model"} <= arms.keys()
    # More was not recorded.
    assert "fixed K = 8" not in arms
    speeds = {
        name: statistics.median(found["tokens_per_second"] for found in replay(one, arms[name], "easy", 1, SIZES))
        for name in (NONE, "fixed K = 4, draft_model", "optimal")
    }
    assert speeds["fixed K = 4, draft_model"] > 1.5 * speeds[NONE]
    assert speeds["optimal"] > speeds[NONE]


def test_every_mechanism_can_be_switched_off_and_is_back_afterwards() -> None:
    one = recording()
    gains = {name: ablate(one, "mixed", 2, SIZES, name) for name in MECHANISMS}
    # A mechanism that is no longer where it was would raise; one that is not switched off gains exactly nothing.
    assert any(map(any, gains.values()))
    assert {name: ablate(one, "mixed", 2, SIZES, name) for name in MECHANISMS} == gains


def test_the_report_tells_ratios() -> None:
    measured = Measurements()
    names = (NONE, OFF, "fixed K = 2", "fixed K = 4", "optimal", "optimal, ngram")
    for name, rate in zip(names, (100, 90, 120, 150, 180, 60), strict=True):
        for seed, factor in enumerate((0.9, 1.0, 1.2)):
            figures = {"tokens_per_second": factor * rate, "first_tokens_per_second": rate, "draft_tokens": 3.0}
            measured.add(name, "one: easy", 2, seed, figures)
    report = rates_report({"one": measured}, {})
    (table,) = report.tables
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert (row["/ none"], row["K = 0 / none"], row["/ best"], row["best"]) == ("1.80", "0.90", "1.20", "K = 4")
    assert (row["/ ngram"], row["drafted"], row["streams"]) == ("3.00", "1.5", "easy, 2")
    assert report.conclusion[0] == "one: optimal is at 1.80 to 1.80 of no speculation."
    assert len(report.charts) == 1


def test_gains_are_told_by_mechanism_and_setting_with_their_errors() -> None:
    measured = Measurements()
    for number, (first, second) in enumerate([(0.02, 0.0), (0.04, 0.0)]):
        measured.add("a", "one: easy", 8, number, {"gain": first})
        measured.add("b", "one: easy", 8, number, {"gain": second})
    report = gains_report({"one": measured}, {})
    (table,) = report.tables
    assert list(table.header) == ["mechanism", "easy, 8", "surely"]
    assert table.rows == [["a", "+3.0 ± 1.0", "1.0"], ["b", "+0.0 ± 0.0", "0.0"]]
    assert report.conclusion == ["one: a gains beyond two standard errors."]
