"""What is drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch

from loadtests.report.latencies import LATENCIES, Latency
from loadtests.report.plots.chunks import draw_chunks
from loadtests.report.plots.latencies import draw_course, draw_distribution
from loadtests.report.plots.load import draw_load
from loadtests.report.result import Result
from tests.unit.loadtests.report.results import MIXED, STARTED, answered, result


def drawn(draw: Callable[..., None], test: Result, **more: Any) -> list[Axes]:
    figure = Figure()
    draw(figure, test, **more)
    return figure.axes


def labels(axes: Axes) -> list[str]:
    return [str(label) for label in axes.get_legend_handles_labels()[1]]


def points(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Of all lines, by their labels."""
    return {str(line.get_label()): [(x, y) for x, y in np.asarray(line.get_xydata()).tolist()] for line in axes.lines}


def steps(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(patch.get_data()[0]) for patch in axes.patches if isinstance(patch, StepPatch)]


@pytest.mark.parametrize(
    ("latency", "limit"),
    list(zip(LATENCIES, (["SLO 300 ms"], ["SLO 60.0 ms"], []), strict=True)),
    ids=["ttft", "tpot", "e2e"],
)
def test_a_distribution_has_a_curve_for_each_scenario_and_one_for_the_limit(latency: Latency, limit: list[str]) -> None:
    (axes,) = drawn(draw_distribution, MIXED, latency=latency)
    assert labels(axes) == ["chat", "edit", *limit]
    chat, edit = axes.lines[:2]
    assert chat.get_color() != edit.get_color()
    assert chat.get_linestyle() != edit.get_linestyle()


def test_a_distributions_curves_go_from_none_to_all() -> None:
    (axes,) = drawn(draw_distribution, MIXED, latency=LATENCIES[0])
    found = points(axes)
    assert (found["chat"][0], found["chat"][-1]) == ((200, 0), (200, 1))
    assert {x for x, _ in found["edit"]} == {400}
    assert {x for x, _ in found["SLO 300 ms"]} == {300}


def test_the_course_has_a_point_for_each_request_and_percentiles() -> None:
    panels = drawn(draw_course, MIXED, latencies=LATENCIES)
    assert [axes.get_ylabel() for axes in panels] == ["TTFT, ms", "TPOT, ms", "end to end, ms"]
    ttft, tpot, e2e = map(points, panels)
    assert list(ttft) == list(tpot) == ["chat", "edit", "p50", "p95", "SLO"]
    assert list(e2e) == ["chat", "edit", "p50", "p95", "failed"]
    assert ttft["chat"] == [(0.5 * number, 200) for number in range(14)]
    assert e2e["failed"] == [(1, 500), (2, 500)]


def test_the_load_is_users_requests_and_tokens_over_time() -> None:
    measures = {"chat": [answered(0.0, ttft=2.0, tpot=0.3, tokens=21), answered(2.0, ttft=2.0, tpot=0.1, tokens=21)]}
    users = [(STARTED, 1), (STARTED + 2, 3), (STARTED + 8, 0)]
    test = result(measures, users=users, in_flight=[(STARTED, 1), (STARTED + 4, 2), (STARTED + 8, 0)])
    above, below = drawn(draw_load, test)
    assert labels(above) == ["requests in flight", "users"]
    in_flight, count = steps(above)
    np.testing.assert_allclose([count[0], count[31], count[-1]], [1, 3, 3])
    np.testing.assert_allclose([in_flight[0], in_flight[59], in_flight[60]], [1, 1, 2], rtol=1e-6)
    (tokens,) = steps(below)
    # 21 tokens from 2 s to 8 s, and as many from 4 s to 6 s.
    np.testing.assert_allclose([tokens[0], tokens[45], tokens[75], tokens[105]], [0, 3.5, 14, 3.5], rtol=1e-6)


def test_chunks_are_shown_by_their_share() -> None:
    (axes,) = drawn(draw_chunks, MIXED)
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    # One token first, two tokens ten times.
    np.testing.assert_allclose([bar.get_height() for bar in bars], [1 / 11, 10 / 11])
    np.testing.assert_allclose([bar.get_x() + bar.get_width() / 2 for bar in bars], [1, 2])


def test_of_very_many_requests_only_some_are_drawn() -> None:
    many = result({"chat": [answered(0.001 * number) for number in range(5000)]})
    (axes,) = drawn(draw_course, many, latencies=LATENCIES[:1])
    assert len(points(axes)["chat"]) == 1667
