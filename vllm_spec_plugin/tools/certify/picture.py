"""Draws the p-values of all checks."""

from pathlib import Path

from vllm_spec_plugin.tools.certify.report import verdict
from vllm_spec_plugin.tools.certify.results import Report

_LEAST = 1e-16
_COLOURS = ("#7f7f7f", "#1f77b4", "#ff7f0e", "#2ca02c")


def draw(report: Report, model: str, path: Path) -> None:
    """Writes a PNG: each check's always-valid p-values against the threshold."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    checks = [check for check in report.checks if check.p_value is not None]
    engines = list(dict.fromkeys(check.engine for check in checks))
    names = list(dict.fromkeys(check.name for check in checks))
    figure, axes = plt.subplots(figsize=(9, 1.8 + 0.45 * len(names)), layout="constrained")
    for check in checks:
        place = engines.index(check.engine)
        row = names.index(check.name) + 0.22 * (place - (len(engines) - 1) / 2)
        for p, marker in ((check.p_value, "o"), (check.p_two_samples, "^")):
            if p is not None:
                fill = "white" if check.outcome == "not tested" else _COLOURS[place]
                axes.plot(
                    max(p, _LEAST),
                    row,
                    marker,
                    color=_COLOURS[place],
                    markerfacecolor=fill,
                    markersize=7,
                    clip_on=False,
                )
    axes.axvline(report.threshold, color="red", linestyle="--")
    axes.text(report.threshold, -0.75, " not exact ←", color="red", ha="right", va="bottom", fontsize=9)
    axes.set(xscale="log", xlim=(_LEAST, 1.5), ylim=(len(names) - 0.4, -0.8), yticks=range(len(names)))
    axes.set_yticklabels(names)
    axes.set_xlabel(
        f"always-valid p-value (threshold {report.threshold:.2g}; false alarms {report.false_alarm:g} in all)"
    )
    for place, engine in enumerate(engines):
        axes.plot([], [], "s", color=_COLOURS[place], label=engine)
    axes.plot([], [], "ok", label="against the target's probabilities")
    axes.plot([], [], "^k", label="against samples without speculation")
    axes.plot([], [], "ok", markerfacecolor="white", label="too few drafts")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"{model}: {verdict(report)}", fontsize=10, wrap=True)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
