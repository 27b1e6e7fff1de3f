"""The outcome of each check, and the verdict."""

from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["exact", "not exact", "not tested"]


@dataclass(frozen=True)
class Check:
    """One check of one engine.

    Attributes:
        outcome: not tested where there were too few drafts to say anything.
        p_value: always-valid p-value against the target's law; None where nothing is drawn.
        p_two_samples: the same against the engine without speculation.
        p_chi_square: asymptotic p-value of the same counts, for comparison; decides nothing.
        tested: tokens that were tested, by stratum.
        is_required: whether nothing can be said without this check.
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
    p_chi_square: float | None = None
    tested: dict[str, int] = field(default_factory=dict)
    is_required: bool = True


@dataclass(frozen=True)
class Report:
    """All checks.

    Attributes:
        checks: in order.
        false_alarm: probability that one of the p-values is below its threshold though the outputs are exact.
        threshold: for each p-value.
        seconds: the whole took.
    """

    checks: tuple[Check, ...]
    false_alarm: float
    threshold: float
    tolerance: float
    seconds: float
    facts: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def failed(self) -> list[Check]:
        """Checks that found the outputs not to be exact."""
        return [check for check in self.checks if check.outcome == "not exact"]

    @property
    def untested(self) -> list[str]:
        """Names of checks that could be made of no engine."""
        tested = {check.name for check in self.checks if check.outcome != "not tested"}
        return list(dict.fromkeys(check.name for check in self.checks if check.name not in tested))

    @property
    def is_complete(self) -> bool:
        """Whether all that is required could be tested."""
        required = {check.name for check in self.checks if check.is_required}
        return not required.intersection(self.untested)

    @property
    def exit_status(self) -> int:
        """Exit status: 0 exact, 1 not exact, 2 undecided."""
        return 1 if self.failed else 0 if self.is_complete else 2
