"""Figures of a sweep."""

import pytest

from tests.unit.tools.bench.load.cases import K_1, K_4, results, run, steady, windows
from vllm_spec_plugin.tools.bench.arm_words import NONE, OPTIMAL
from vllm_spec_plugin.tools.bench.load.summary import best_fixed, over, summarise
from vllm_spec_plugin.tools.bench.load.workloads import EASY, HARD


def test_tokens_per_second_are_of_all_phases_together() -> None:
    runs = [run("a", [steady(10.0, 100), steady(40.0, 100)], number=number) for number in (0, 1)]
    assert summarise(runs, "a", EASY, 1).tokens_per_second == {0: pytest.approx(16.0), 1: pytest.approx(16.0)}


def test_only_the_runs_of_the_cell_count() -> None:
    runs = [
        run("a", [steady(10.0)]),
        run("a", [steady(20.0)], streams=8),
        run("a", [steady(30.0)], workload=HARD),
        run("b", [steady(40.0)]),
    ]
    assert summarise(runs, "a", EASY, 8).median == pytest.approx(20.0)


def test_acceptance_and_draft_length_are_of_all_rounds() -> None:
    runs = [
        run("a", [steady(10.0, request_steps=10)], number=0, counts=(10, 40, 30)),
        run("a", [steady(10.0, request_steps=30)], number=1, counts=(10, 40, 10)),
    ]
    summary = summarise(runs, "a", EASY, 1)
    assert summary.acceptance_length == pytest.approx(3.0)
    assert summary.draft_length == pytest.approx(2.0)


def test_without_drafts_there_is_no_acceptance_length() -> None:
    summary = summarise([run("a", [steady(10.0)], counts=(0, 0, 0))], "a", EASY, 1)
    assert (summary.acceptance_length, summary.draft_length) == (None, 0.0)


def test_a_rounds_latency_is_the_median_of_its_requests() -> None:
    runs = [run("a", [steady(rate), steady(rate)], number=number) for number, rate in enumerate((10.0, 20.0))]
    summary = summarise(runs, "a", EASY, 1)
    assert summary.ttft == {0: pytest.approx(0.2), 1: pytest.approx(0.1)}
    assert summary.tpot == {0: pytest.approx(0.1), 1: pytest.approx(0.05)}
    spread = summary.spread("tpot")
    assert spread is not None
    assert spread.median == pytest.approx(0.075)


def test_rounds_in_which_no_request_began_or_ended_have_no_latency() -> None:
    runs = [run("a", [steady(10.0)], number=0), run("a", [windows((10.0,))], number=1)]
    summary = summarise(runs, "a", EASY, 1)
    assert (list(summary.ttft), list(summary.tpot)) == ([0], [0])
    assert summarise(runs[1:], "a", EASY, 1).spread("ttft") is None


def test_tokens_are_counted_by_kind_of_text() -> None:
    runs = [run("a", [steady(10.0, 40, EASY), steady(10.0, 60, HARD), steady(10.0, 50, EASY)])]
    assert summarise(runs, "a", EASY, 1).tokens_by_kind == {EASY: 90, HARD: 60}


def test_the_best_fixed_arm_is_another_one_at_each_level() -> None:
    found = results()
    assert best_fixed(found.summaries, found.fixed, EASY, 1) == K_4
    assert best_fixed(found.summaries, found.fixed, EASY, 8) == K_1
    assert best_fixed(found.summaries, (), EASY, 8) is None


def test_ratios_are_of_the_same_level() -> None:
    found = results()
    for streams, ratio in ((1, 49 / 20), (8, 109 / 100)):
        spread = over(found.summaries, OPTIMAL, NONE, EASY, streams)
        assert spread is not None
        assert spread.low == spread.median == spread.high == pytest.approx(ratio)
    assert over(found.summaries, OPTIMAL, None, EASY, 1) is None


def test_a_ratio_may_be_of_latencies() -> None:
    found = results()
    spread = over(found.summaries, OPTIMAL, NONE, EASY, 1, "tpot")
    assert spread is not None
    assert spread.median == pytest.approx(20 / 49)
