"""The outcome of each check, and the verdict."""

from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_spec_tools.certify.subject import AS_GIVEN, PLAIN

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
