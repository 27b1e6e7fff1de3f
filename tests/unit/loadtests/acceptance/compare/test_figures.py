"""Two clients' figures, invented."""

import dataclasses

import pytest

from loadtests.acceptance.compare.figures import Tpot, tpot_check

RUN = Tpot(median=10.0, mean=12.0, requests=20, failed=0, tokens=1280)


def scaled(factor: float) -> Tpot:
    return dataclasses.replace(RUN, median=RUN.median * factor, mean=RUN.mean * factor)


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.09, True), (0.91, True), (1.11, False), (0.89, False)])
def test_a_tenth_is_the_most_that_they_differ(factor: float, passed: bool) -> None:
    verdict = tpot_check("compare", 8, [scaled(factor)] * 2, [RUN] * 2)
    assert verdict.passed is passed
    assert f"ratios {factor:.3f} and {factor:.3f}" in verdict.figures


def test_runs_are_averaged() -> None:
    assert tpot_check("compare", 1, [scaled(0.8), scaled(1.2)], [RUN, RUN]).passed


def test_the_median_and_the_mean_both_count() -> None:
    assert not tpot_check("compare", 1, [dataclasses.replace(RUN, median=20.0)], [RUN]).passed
    assert not tpot_check("compare", 1, [dataclasses.replace(RUN, mean=20.0)], [RUN]).passed


@pytest.mark.parametrize("change", [{"requests": 19}, {"tokens": 1279}, {"failed": 1}])
def test_other_work_is_not_compared(change: dict[str, int]) -> None:
    verdict = tpot_check("compare", 1, [RUN], [dataclasses.replace(RUN, **change)])
    assert not verdict.passed
    assert "requests, tokens, failed of each run" in verdict.figures


def test_a_server_that_is_faster_in_some_runs_does_not_count() -> None:
    """By its own clock it was a third faster for our client; then it is who reads late that shows."""
    theirs = dataclasses.replace(RUN, served=11.5)
    faster = dataclasses.replace(scaled(2 / 3), served=11.5 * 2 / 3)
    assert tpot_check("compare", 1, [faster], [theirs]).passed
    late = dataclasses.replace(scaled(2 / 3), served=11.5)
    verdict = tpot_check("compare", 1, [late], [theirs])
    assert not verdict.passed
    assert "mean by the server itself 11.50, 11.50 ms; ratio of the means over the server's 0.667" in verdict.figures
    # Not where one run has none.
    assert not tpot_check("compare", 1, [faster], [RUN]).passed
