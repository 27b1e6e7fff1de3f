"""Lines of a picture's panels and its legend."""

from collections import defaultdict
from typing import Any

from vllm_spec_tools.report import Chart, Line
from vllm_spec_tools.report.chart import draw

REFERENCE, MAIN, STOCK, K_1, K_4 = "none", "optimal", "vLLM's suffix", "fixed K = 1", "fixed K = 4"
ROLES = {REFERENCE: "reference", MAIN: "main"}


def chart(*names: str, count: int = 2) -> Chart:
    """A panel with a line per name, of `count` points."""
    points = {float(x): 2.0 for x in range(count)}
    lines = [Line(name, points, ROLES.get(name, "other")) for name in names]  # type: ignore[arg-type]
    return Chart("throughput", "streams", "tokens/s", lines, has_levels=False)


def style(line: Any) -> tuple[Any, ...]:
    """Reads a line's colour, dashes and marker."""
    return line.get_color(), line._unscaled_dash_pattern, line.get_marker()


def styles_by_name(*charts: Chart) -> dict[str, set[tuple[Any, ...]]]:
    """Styles of each line in all panels and the legends."""
    figure = draw(charts, "title", "machine")
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found[name].add(style(handle))
    for legend in figure.legends:
        for line, text in zip(legend.get_lines(), legend.get_texts(), strict=True):
            found[text.get_text()].add(style(line))
    return found


def test_an_arm_has_one_style_in_all_panels_and_in_the_legend() -> None:
    panels = [
        chart(REFERENCE, MAIN, STOCK, K_1, K_4),
        chart(REFERENCE, K_4, MAIN),
        chart(REFERENCE, K_1, K_4, count=200),
    ]
    for order in (panels, panels[::-1]):
        found = styles_by_name(*order)
        assert {name: len(styles) for name, styles in found.items()} == dict.fromkeys(found, 1)
        assert len(set.union(*found.values())) == 5
