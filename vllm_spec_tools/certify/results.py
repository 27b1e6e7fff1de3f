"""The outcome of each check, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vllm_spec_tools.certify.subject import AS_GIVEN, PLAIN
from vllm_spec_tools.report.chart import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Outcome = Literal["exact", "not exact", "not tested"]
SEEDED = "seeded outputs"
# Exit statuses, in words.
VERDICTS = ("exact", "not exact", "could not be told", "not tested as configured")


@dataclass(frozen=True)
class Check:
    """One check of one engine.

    Attributes:
        outcome: not tested where there were too few drafts to say anything.
        drafted: draft tokens that were verified.
        accepted: draft tokens that were accepted.
        p_value: of samples, against the target's probabilities; of seeded outputs, of the differences by rounding.
        p_two_samples: the same against samples without speculation.
        tested: tokens that the tests of samples used, by stratum; accepted and rejected draft tokens apart.
        smallest_fault: of samples, the smallest share of draft tokens, output without verification, that is found with
            a probability of 95%; of seeded outputs, of other tokens; None if none is.
    """

    name: str
    engine: str
    outcome: Outcome
    detail: str
    drafted: int = 0
    accepted: int = 0
    outputs: int = 0
    p_value: float | None = None
    p_two_samples: float | None = None
    tested: dict[str, int] = field(default_factory=dict)
    smallest_fault: float | None = None
    is_required: bool = True


@dataclass(frozen=True)
class Certificate:
    """All checks.

    Attributes:
        minutes: time that an engine had for its samples.
        baseline: file that the outputs without speculation were read from; empty if they were made.
    """

    checks: tuple[Check, ...]
    false_alarm: float
    threshold: float
    tolerance: float
    seconds: float
    minutes: float
    facts: dict[str, Any]
    provenance: dict[str, Any]
    baseline: str = ""

    @property
    def of_drafts(self) -> list[Check]:
        """Checks of engines with speculation."""
        return [check for check in self.checks if check.engine != PLAIN]

    @property
    def failed(self) -> list[Check]:
        """Checks that found the outputs not to be exact."""
        return [check for check in self.checks if check.outcome == "not exact"]

    @property
    def untested(self) -> list[str]:
        """Names of checks that could be made of no engine with speculation."""
        tested = {check.name for check in self.of_drafts if check.outcome != "not tested"}
        return list(dict.fromkeys(check.name for check in self.of_drafts if check.name not in tested))

    @property
    def not_as_configured(self) -> list[str]:
        """Names of checks that could be made with forced draft lengths only, not with the file as it is."""
        untested = set(self.untested)
        given = [check for check in self.of_drafts if check.engine == AS_GIVEN and check.outcome == "not tested"]
        return [check.name for check in given if check.name not in untested]

    @property
    def is_complete(self) -> bool:
        """Whether all that is required could be tested."""
        required = {check.name for check in self.of_drafts if check.is_required}
        return not required.intersection(self.untested)

    @property
    def exit_status(self) -> int:
        """Exit status: 0 exact, 1 not exact, 2 undecided, 3 exact with forced draft lengths, untested as configured."""
        if self.failed:
            return 1
        if not self.is_complete:
            return 2
        return 3 if self.not_as_configured else 0


_LEAST = 1e-16
# Dark and light, so that engines differ in greyscale, too.
_COLOURS = ("#08306b", "#E69F00", "#74c476", "#7f7f7f")
_LAW, _SAMPLES, _FEW = "against the target's probabilities", "against samples without speculation", "too few drafts"
_ROUNDING = "of the differences by rounding"


@dataclass(frozen=True)
class PValues(Panel):
    """Each check's p-values against the threshold.

    Attributes:
        report: at least one of its checks has a p-value.
    """

    report: Certificate
    title: str = "p-values"

    @property
    def names(self) -> list[str]:
        return [*self.coloured, *self._tests, _FEW]

    @property
    def _tests(self) -> list[str]:
        is_coupled = any(check.name == SEEDED for check in self.report.checks)
        return [_ROUNDING] if is_coupled else [_LAW, _SAMPLES]

    @property
    def coloured(self) -> list[str]:
        # Names of the engines.
        return list(dict.fromkeys(check.engine for check in self.report.checks if check.p_value is not None))

    @property
    def height(self) -> float:
        return 1.4 + 0.45 * len(self._checks)

    @property
    def _checks(self) -> list[str]:
        return list(dict.fromkeys(check.name for check in self.report.checks if check.p_value is not None))

    def draw(self, axes: "Axes", styles: Mapping[str, int]) -> None:
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
        for test, marker in zip(self._tests, "o^", strict=False):
            axes.plot([], [], f"{marker}k", label=test)
        axes.plot([], [], "ok", markerfacecolor="white", label=_FEW)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
