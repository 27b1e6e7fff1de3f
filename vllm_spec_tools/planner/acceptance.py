"""Acceptance of a proposer's drafts, by position. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from vllm_spec_tools.bench.records import Answer
from vllm_spec_tools.planner.generalised import conditional_rates


@dataclass(frozen=True)
class Acceptance:
    """Counts over decode steps.

    Attributes:
        drafts: number of drafts; suffixes have none where nothing matches.
        accepted: number of accepted draft tokens by position, in trees by level.
    """

    request_steps: int
    drafts: int
    accepted: tuple[int, ...]

    @classmethod
    def of(cls, answers: Iterable[Answer], positions: int) -> Self:
        """Adds up jobs whose drafts have at most `positions` tokens in sequence."""
        request_steps = drafts = 0
        accepted = [0] * positions
        for answer in answers:
            # A request has one output token from its prompt, and one per step besides the accepted ones.
            own = sum(map(len, answer.token_ids)) - len(answer.token_ids) - answer.num_accepted_tokens
            request_steps += own
            drafts += answer.num_drafts
            for position, count in enumerate(answer.accepted_by_position[:positions]):
                accepted[position] += count
        return cls(request_steps, drafts, tuple(accepted))

    @property
    def draft_share(self) -> float:
        """Returns the share of request-steps with a draft."""
        return self.drafts / self.request_steps if self.request_steps else 0.0

    @property
    def reached(self) -> list[float]:
        """Returns accepted tokens per request-step by position, requests without drafts included."""
        return [count / self.request_steps if self.request_steps else 0.0 for count in self.accepted]

    @property
    def rates(self) -> list[float]:
        """Returns alpha by position: the share accepted where all earlier positions were."""
        return conditional_rates([count / self.drafts if self.drafts else 0.0 for count in self.accepted])

    @property
    def length(self) -> float | None:
        """Returns 1 + accepted / drafts; None without drafts."""
        return 1 + sum(self.accepted) / self.drafts if self.drafts else None

    @property
    def tokens_per_step(self) -> float:
        """Returns output tokens per request and step, with and without drafts."""
        return 1 + sum(self.reached)

    @property
    def perfect(self) -> Self:
        """Returns the same drafts with all tokens accepted."""
        return replace(self, accepted=(self.drafts,) * len(self.accepted))
