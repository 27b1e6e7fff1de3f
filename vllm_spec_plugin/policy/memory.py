"""Numbers that a policy of draft lengths has learned: the prior of the next server of the same kind."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# More rows or columns than any configuration has.
_MOST = 512

Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e9, le=1e9)]
Row = Annotated[list[Number], Field(max_length=_MOST)]
Positive = Annotated[float, Field(strict=True, gt=0, lt=1e6)]
NotNegative = Annotated[float, Field(strict=True, ge=0, lt=1e6)]


class _Numbers(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Verdict(_Numbers):
    """Result of comparing steps with drafts and without, for a class of batch sizes.

    Attributes:
        gain: significant gain of drafting, in steps without drafts; 0 after a loss.
        error: standard error of `gain`.
        retry: after a loss, steps without drafts until the next trial; 0 after a gain.
        expected: decayed sum of expected draft tokens, at least 1.
        accepted: decayed sum of accepted ones.
    """

    gain: NotNegative
    error: NotNegative
    retry: Annotated[int, Field(ge=0, le=1_000_000)]
    expected: Annotated[float, Field(ge=1, lt=1e6)]
    accepted: NotNegative


class Learned(_Numbers):
    """Costs, acceptance and verdicts that a policy has learned.

    Attributes:
        version: of this format.
        log_odds: see `Acceptance`; of all series.
        information: see `Acceptance`.
        variance: see `Acceptance`.
        step_tokens: tokens at the knots of the curve of the target's steps, ascending; empty if none was measured.
        step_seconds: seconds at these.
        step_others: see `StepTimes`.
        draft_costs: per proposer, see `DraftCost`; empty where none was measured.
        verdicts: by class of batch sizes, the bit length of the number of requests.
    """

    version: Literal[1] = 1
    log_odds: Annotated[list[Row], Field(max_length=_MOST)]
    information: Annotated[list[Annotated[list[NotNegative], Field(max_length=_MOST)]], Field(max_length=_MOST)]
    variance: Annotated[list[Positive], Field(max_length=_MOST)]
    step_tokens: Annotated[list[Positive], Field(max_length=_MOST)]
    step_seconds: Annotated[list[Positive], Field(max_length=_MOST)]
    step_others: Annotated[list[NotNegative], Field(max_length=16)]
    draft_costs: Annotated[list[Annotated[list[NotNegative], Field(max_length=4)]], Field(max_length=_MOST)]
    verdicts: Annotated[dict[Annotated[int, Field(ge=0, le=32)], Verdict], Field(max_length=33)]

    def fits(self, num_proposers: int, num_positions: int) -> bool:
        """Whether it is of that many proposers with drafts of that many tokens at most."""
        series = 2 * num_proposers
        rows = [*self.log_odds, *self.information]
        return (
            len(rows) == 2 * series
            and all(len(row) == num_positions for row in rows)
            and len(self.variance) == series
            and len(self.draft_costs) == num_proposers
            and len(self.step_tokens) == len(self.step_seconds)
            and sorted(set(self.step_tokens)) == self.step_tokens
        )
