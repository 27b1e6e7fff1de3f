"""A sweep in words."""

from dataclasses import replace

import pytest

from tests.unit.tools.bench.load.cases import ARMS, results, run
from vllm_spec_plugin.tools.bench.arm_words import OPTIMAL
from vllm_spec_plugin.tools.bench.load.records import Progress
from vllm_spec_plugin.tools.bench.load.report.sentences import STOCK_NOTE, notes, sentences
from vllm_spec_plugin.tools.bench.load.sweep import results_of
from vllm_spec_plugin.tools.bench.load.workloads import EASY, HARD, MIXED


def test_the_lowest_and_highest_ratios_are_told_with_their_levels() -> None:
    first, second, *_ = sentences(results())
    assert first == (
        "easy: optimal is at 1.09 (8 streams) to 2.45 (1 stream) times none and 0.98 (1 stream) to 0.99 (8 streams) "
        "times the best fixed K."
    )
    assert second.startswith("switching, 1 stream: optimal is near the best after so many tokens: phase 1 (easy) 0 (")
    assert "phase 2 (hard) 100 (best: none), phase 3 (easy) never (best: K = 4)" in second


def test_the_share_of_predictable_text_in_a_mixture_is_told() -> None:
    runs = [
        run(name, [Progress([1.0], [100], {EASY: easy, HARD: 100 - easy}, 1)], workload=MIXED)
        for name, easy in zip(ARMS, (50, 51, 64, 52, 53), strict=True)
    ]
    assert next(sentences(results_of(runs, ARMS, [(MIXED, 1)], {}))) == (
        "mixed: of the output tokens, 50% (none, 1 stream) to 64% (K = 4, 1 stream) are predictable text's."
    )


def test_without_optimal_nothing_is_told_of_it() -> None:
    found = results()
    arms = tuple(name for name in found.arms if name != OPTIMAL)
    assert list(sentences(replace(found, arms=arms))) == []


def test_without_fixed_arms_there_is_no_best_one() -> None:
    found = replace(results(), fixed=())
    assert "best fixed" not in next(sentences(found))
    assert "best K" not in next(notes(found, False))


@pytest.mark.parametrize(
    ("on_cpu", "switching", "is_there"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_stock_text_above_temperature_0_is_warned_of_on_cpu(on_cpu: bool, switching: bool, is_there: bool) -> None:
    assert (STOCK_NOTE in notes(results(switching=switching), on_cpu)) == is_there
