"""How a proposer's drafts fare, place by place. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from vllm_spec_plugin.tools.bench.records import Answer
from vllm_spec_plugin.tools.theory.generalised import conditional_rates


@dataclass(frozen=True)
class Acceptance:
    """Counts over steps without prompts.

    Attributes:
        request_steps: requests that were in them, step by step.
        drafts: of these, how many had a draft; n-grams have none where nothing matches.
        accepted: drafts whose first token was accepted, whose second was, and so on; of trees by level.
    """

    request_steps: int
    drafts: int
    accepted: tuple[int, ...]

    @classmethod
    def of(cls, answers: Iterable[Answer], places: int) -> Self:
        """Of jobs whose drafts had at most `places` tokens one after the other."""
        request_steps = drafts = 0
        accepted = [0] * places
        for answer in answers:
            # Every request has its first token from its prompt, and one per step besides what was accepted.
            own = sum(map(len, answer.token_ids)) - len(answer.token_ids) - answer.num_accepted_tokens
            request_steps += own
            drafts += answer.num_drafts
            for place, count in enumerate(answer.accepted_by_place[:places]):
                accepted[place] += count
        return cls(request_steps, drafts, tuple(accepted))

    @property
    def draft_share(self) -> float:
        """Of request-steps, those with a draft."""
        return self.drafts / self.request_steps if self.request_steps else 0.0

    @property
    def reached(self) -> list[float]:
        """How often each place is accepted, per request-step: `conditional_rates`' input, having no draft included."""
        return [count / self.request_steps if self.request_steps else 0.0 for count in self.accepted]

    @property
    def rates(self) -> list[float]:
        """Alpha by place: how often a place of a draft is accepted if those before it were."""
        return conditional_rates([count / self.drafts if self.drafts else 0.0 for count in self.accepted])

    @property
    def length(self) -> float | None:
        """1 + accepted / drafts; None without drafts."""
        return 1 + sum(self.accepted) / self.drafts if self.drafts else None

    @property
    def tokens_per_step(self) -> float:
        """Output tokens of a request in a step, with and without drafts alike."""
        return 1 + sum(self.reached)

    @property
    def perfect(self) -> Self:
        """The same drafts, all of them accepted."""
        return replace(self, accepted=(self.drafts,) * len(self.accepted))
