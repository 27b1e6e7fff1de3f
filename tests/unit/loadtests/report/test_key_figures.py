"""The few figures that a report begins with."""

import dataclasses

from loadtests.report.key_figures import key_figures
from tests.unit.loadtests.report.results import MIXED


def test_key_figures_are_those_of_all_requests() -> None:
    found = {figure.name: (figure.value, figure.note) for figure in key_figures(MIXED)}
    # Until 8.9 s, when the last edit ends.
    assert found["Requests"] == ("30", "3.15 answered per second")
    assert found["Failed"] == ("2", "6.7%")
    assert found["Output tokens/s"] == ("66.1", "588 in all")
    assert found["TTFT, p50"] == ("300 ms", "p95 400 ms")
    assert found["TPOT, p50"] == ("75.0 ms", "p95 100 ms")
    assert found["Goodput"] == ("46.7%", "1.57 per second with TTFT ≤ 300 ms, TPOT ≤ 60.0 ms")
    assert found["Acceptance rate"] == ("62.5%", "3.50 tokens per step with a draft")
    assert [figure.name for figure in key_figures(MIXED) if figure.is_bad] == ["Failed"]


def test_what_was_not_asked_for_or_is_not_known_is_no_key_figure() -> None:
    names = {figure.name for figure in key_figures(dataclasses.replace(MIXED, slo=None, server=None))}
    assert names == {"Requests", "Failed", "Output tokens/s", "TTFT, p50", "TPOT, p50"}
