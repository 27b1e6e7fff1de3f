"""What one step did, in numbers that can be added up. Imports no vLLM."""

from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass
class StepCounters:
    """Counts of one or more steps.

    Attributes:
        method: the proposer's name in the configuration.
        drafts: drafts with at least one token.
        draft_tokens: their tokens.
        proposer_errors: drafts or steps lost, by what was wrong.
        proposer_seconds: time spent proposing.
        verification_seconds: time spent in the scorer, steps without drafts included.
        tree_seconds: time spent laying out steps that verify trees, and copying KV blocks for them.
        kv_blocks_reserved: KV blocks given to requests for tokens that were still to be drafted.
        kv_blocks_rolled_back: KV blocks taken back from requests whose drafts did not need them.
        drafts_cut_for_memory: draft tokens dropped before they were verified, or not drafted, because
            there were no KV blocks for them.
        verified_per_position: draft tokens verified, by their place in the draft.
        accepted_per_position: how many of those were kept.
        ended: acceptance rate and acceptance length of each request that ended, if it had drafts.
        chosen_lengths: how often a request was to be drafted so many tokens for, by their number from 0.
        switched_off: how often a request was no longer to be drafted for that was in the step before.
        predicted_seconds: what steps were expected to take, where the policy reckons with it.
        measured_seconds: what the same steps took.
        expected_saved_seconds: what drafting was expected to save in them.
        realised_saved_seconds: what it saved, by what steps without drafts are expected to take.
        acceptance: the policy's latest estimate per place; empty if it makes none.
    """

    method: str
    drafts: int = 0
    draft_tokens: int = 0
    proposer_errors: dict[str, int] = field(default_factory=dict)
    proposer_seconds: float = 0.0
    verification_seconds: float = 0.0
    tree_seconds: float = 0.0
    kv_blocks_reserved: int = 0
    kv_blocks_rolled_back: int = 0
    drafts_cut_for_memory: int = 0
    verified_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    ended: list[tuple[float, float]] = field(default_factory=list)
    chosen_lengths: list[int] = field(default_factory=list)
    switched_off: int = 0
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    expected_saved_seconds: float = 0.0
    realised_saved_seconds: float = 0.0
    acceptance: list[float] = field(default_factory=list)

    def count_verified(self, drafted: int, accepted: int) -> None:
        """Adds one draft that was verified."""
        _grow(self.verified_per_position, [1] * drafted)
        _grow(self.accepted_per_position, [1] * accepted)

    def count_chosen(self, length: int, num_requests: int = 1) -> None:
        """Adds requests that so many tokens each are to be drafted for."""
        _grow(self.chosen_lengths, [*[0] * length, num_requests])

    def count_error(self, reason: str) -> None:
        """Adds one proposer error."""
        self.proposer_errors[reason] = self.proposer_errors.get(reason, 0) + 1

    def add(self, other: Self) -> None:
        """Adds another step of the same proposer."""
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.proposer_seconds += other.proposer_seconds
        self.verification_seconds += other.verification_seconds
        self.tree_seconds += other.tree_seconds
        self.kv_blocks_reserved += other.kv_blocks_reserved
        self.kv_blocks_rolled_back += other.kv_blocks_rolled_back
        self.drafts_cut_for_memory += other.drafts_cut_for_memory
        _grow(self.verified_per_position, other.verified_per_position)
        _grow(self.accepted_per_position, other.accepted_per_position)
        self.ended += other.ended
        _grow(self.chosen_lengths, other.chosen_lengths)
        self.switched_off += other.switched_off
        self.predicted_seconds += other.predicted_seconds
        self.measured_seconds += other.measured_seconds
        self.expected_saved_seconds += other.expected_saved_seconds
        self.realised_saved_seconds += other.realised_saved_seconds
        self.acceptance = other.acceptance or self.acceptance
        for reason, count in other.proposer_errors.items():
            self.proposer_errors[reason] = self.proposer_errors.get(reason, 0) + count

    def to_payload(self) -> dict[str, Any]:
        """Plain values, for sending between processes."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """The inverse of `to_payload`."""
        return cls(**payload)


def _grow(counts: list[int], more: list[int]) -> None:
    """Adds `more` to `counts`, place by place."""
    counts += [0] * (len(more) - len(counts))
    for place, count in enumerate(more):
        counts[place] += count
