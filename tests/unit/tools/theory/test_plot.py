"""The picture: that it is one, and which curves are in it."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vllm_spec_plugin.tools.theory.plot import _COLOURS, _STROKES, MOST_CURVES, Picture, draw

PICTURE = Picture((0.5, 0.9), (0.0, 0.05, 0.2), (1, 4), 0.1, 0.2)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Figure:
    path = tmp_path_factory.mktemp("theory") / "theory.png"
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", keep)
        draw(PICTURE, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    return figures[0]


def test_every_panel_has_a_title_labels_and_a_curve_for_each_value(drawn: Figure) -> None:
    legends = []
    for axes in drawn.axes:
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        legend = axes.get_legend()
        assert legend is not None
        legends.append([text.get_text() for text in legend.get_texts()])
    assert legends == [
        ["c = 0: the longer, the faster", "c = 0.05", "c = 0.2"],
        [r"$\alpha$ = 0.9", r"$\alpha$ = 0.5"],
        ["without speculation", "K = 4", "K = 1"],
        ["without speculation", "K = 4", "K = 1"],
    ]


def points(axes: Axes) -> dict[str, dict[float, float]]:
    """The curves of a panel by their labels, as y of x."""
    return {
        str(line.get_label()): dict(zip(*np.asarray(line.get_data(), np.float64).tolist(), strict=True))
        for line in axes.lines
        if len(np.asarray(line.get_xdata())) > 2
    }


def test_curves_are_those_of_the_formulas(drawn: Figure) -> None:
    best, tokens, speed, operations = (points(axes) for axes in drawn.axes)
    assert best["c = 0.05"][0.8] == 8
    assert best["c = 0.2"][0.2] == 0
    assert tokens[r"$\alpha$ = 0.5"][2] == pytest.approx(1.75)
    assert speed["K = 4"][1] == pytest.approx(5 / 1.4)
    assert operations["K = 4"][0] == pytest.approx(5.8)


def test_curves_of_one_panel_differ_in_colour_and_in_stroke(drawn: Figure) -> None:
    for axes in drawn.axes:
        lines = [line for line in axes.lines if str(line.get_label()) in points(axes)]
        assert len(lines) == 2
        assert len({line.get_color() for line in lines}) == 2
        assert len({line.get_linestyle() for line in lines}) == 2


def test_all_curves_that_fit_can_be_told_apart() -> None:
    assert len(set(_COLOURS)) == len(set(map(str, _STROKES))) == MOST_CURVES
