"""Horizontal bars of parts that add up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_spec_tools.report.chart import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fills of stacked bars: dark and light alternately, the light ones hatched, so that parts differ in greyscale.
_FILLS = (
    ("#08306b", ""),
    ("#fdae6b", "//"),
    ("#238b45", ""),
    ("#deebf7", ".."),
    ("#a63603", ""),
    ("#9ecae1", "\\\\"),
    ("#54278f", ""),
    ("#fee391", "xx"),
    ("#636363", ""),
    ("#fa9fb5", "||"),
    ("#d9d9d9", "--"),
)


@dataclass(frozen=True)
class StackedBars(Panel):
    """Horizontal bars, one per arm, of parts that add up.

    Attributes:
        parts: values by part and arm.
    """

    title: str
    x_label: str
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Entries of the legend."""
        return list(self.parts)

    @property
    def coloured(self) -> list[str]:
        """Names of the parts, each of which has a fill."""
        return list(self.parts)

    @property
    def height(self) -> float:
        """Height in inches."""
        return 1.0 + 0.36 * len(next(iter(self.parts.values())))

    def draw(self, axes: "Axes", styles: Mapping[str, int]) -> None:
        """Draws into axes."""
        arms = list(next(iter(self.parts.values())))
        left = dict.fromkeys(arms, 0.0)
        for part, values in self.parts.items():
            shade, hatch = _FILLS[styles[part] % len(_FILLS)]
            style: dict[str, Any] = {"color": shade, "hatch": hatch, "edgecolor": "#333333", "linewidth": 0.4}
            axes.barh(arms, [values[arm] for arm in arms], left=[left[arm] for arm in arms], label=part, **style)
            left = {arm: left[arm] + values[arm] for arm in arms}
        axes.invert_yaxis()
        axes.set_xlim(0, 1.05 * max(left.values()) or 1)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_xlabel(self.x_label)
