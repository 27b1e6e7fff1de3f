"""A chart of the p-values of all checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_spec_tools.certify.results import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 1e-16
# Dark and light, so that engines differ in greyscale, too.
_COLOURS = ("#08306b", "#E69F00", "#74c476", "#7f7f7f")
_LAW, _SAMPLES, _FEW = "against the target's probabilities", "against samples without speculation", "too few drafts"


@dataclass(frozen=True)
class PValues:
    """Each check's always-valid p-values against the threshold.

    Attributes:
        report: at least one of its checks has a p-value.
    """

    report: Report
    title: str = "Always-valid p-values"

    @property
    def names(self) -> list[str]:
        """Entries of the legend."""
        return [*self.coloured, _LAW, _SAMPLES, _FEW]

    @property
    def coloured(self) -> list[str]:
        """Names of the engines, each of which has a colour."""
        return list(dict.fromkeys(check.engine for check in self.report.checks if check.p_value is not None))

    @property
    def height(self) -> float:
        """Height in inches."""
        return 1.4 + 0.45 * len(self._checks)

    @property
    def _checks(self) -> list[str]:
        return list(dict.fromkeys(check.name for check in self.report.checks if check.p_value is not None))

    def draw(self, axes: "Axes", styles: Mapping[str, int]) -> None:
        """Draws into axes."""
        engines, names, threshold = self.coloured, self._checks, self.report.threshold
        colours = {engine: _COLOURS[styles[engine] % len(_COLOURS)] for engine in engines}
        for check in self.report.checks:
            if check.p_value is None:
                continue
            colour = colours[check.engine]
            row = names.index(check.name) + 0.22 * (engines.index(check.engine) - (len(engines) - 1) / 2)
            fill = "white" if check.outcome == "not tested" else colour
            for p, marker in ((check.p_value, "o"), (check.p_two_samples, "^")):
                if p is not None:
                    style: dict[str, Any] = {
                        "color": colour,
                        "markerfacecolor": fill,
                        "markersize": 7,
                        "clip_on": False,
                    }
                    axes.plot(max(p, _LEAST), row, marker, **style)
        axes.axvline(threshold, color="black", linestyle="--")
        axes.text(threshold, -0.78, "not exact ← ", ha="right", va="top", fontsize=9)
        axes.set(xscale="log", xlim=(_LEAST, 1.5), ylim=(len(names) - 0.4, -0.8), yticks=range(len(names)))
        axes.set_yticklabels(names)
        axes.set_xlabel(f"p-value (threshold {threshold:.2g}; false alarms {self.report.false_alarm:g} in all)")
        for engine, colour in colours.items():
            axes.plot([], [], "s", color=colour, label=engine)
        axes.plot([], [], "ok", label=_LAW)
        axes.plot([], [], "^k", label=_SAMPLES)
        axes.plot([], [], "ok", markerfacecolor="white", label=_FEW)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
