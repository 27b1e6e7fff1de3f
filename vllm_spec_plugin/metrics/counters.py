"""Counts of steps, which can be added."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

# Labels `reason`: faults of proposers, and requests that drafts could change the output of.
RAISED = "raised"
WRONG_COUNT = "wrong_number_of_drafts"
WRONG_TYPE = "wrong_type"
TOO_MANY_TOKENS = "too_many_tokens"
WRONG_TREE = "wrong_tree"
OUT_OF_VOCABULARY = "token_out_of_vocabulary"
BAD_PROBS = "bad_probabilities"
RANKS_DIFFER = "ranks_differ"
PROPOSER_ERRORS = (
    RAISED,
    WRONG_COUNT,
    WRONG_TYPE,
    TOO_MANY_TOKENS,
    WRONG_TREE,
    OUT_OF_VOCABULARY,
    BAD_PROBS,
    RANKS_DIFFER,
)
THINKING_BUDGET = "thinking_budget"
RESUMABLE = "resumable"
PROMPT_EMBEDS = "prompt_embeds"
POOLING = "pooling"
GRAMMAR = "grammar"
# Labels `kind`, in the order of `proposers.grammar.state.Kind`.
KINDS = ("forced", "likely", "guess")
WITHOUT_DRAFTS = (THINKING_BUDGET, RESUMABLE, PROMPT_EMBEDS, POOLING, GRAMMAR)


@dataclass
class StepCounters:
    """Counts of one or more steps.

    Attributes:
        method: the proposer's name in the configuration.
        drafts: drafts with at least one token.
        draft_tokens: draft tokens in these drafts.
        proposer_errors: drafts or steps lost, by reason.
        proposer_seconds: time of drafting.
        verification_seconds: time of verification, without steps of vLLM's own sampler.
        tree_seconds: time of laying out steps with trees, and of copying their KV blocks.
        kv_blocks_reserved: KV blocks reserved for tokens to be drafted.
        kv_blocks_rolled_back: KV blocks returned by requests whose drafts did not need them.
        drafts_cut_for_memory: draft tokens dropped before verification, or not drafted, for lack of KV blocks.
        verified_per_position: verified draft tokens, by position in the draft.
        accepted_per_position: accepted draft tokens, by position in the draft.
        verified_by_kind: verified draft tokens of a grammar, by kind.
        accepted_by_kind: accepted ones, by kind.
        ended: acceptance rate and acceptance length of each finished request with drafts.
        chosen_lengths: number of planned drafts, by draft length from 0.
        without_drafts: requests that are served without drafts, by reason.
        requests_without_salt: requests without a cache_salt that share text with all others without one.
        requests_lost: requests that a head can no longer draft for, as hidden states of their text are missing.
        drafter_passes: forward passes of vLLM's drafter, the first one of a step also where nobody drafts.
        drafter_rests: steps in which vLLM's drafter did not run.
        stale_requests: requests with a new gap in the drafter's KV cache, left by steps that skipped vLLM's drafter.
        caught_up_tokens: tokens that vLLM's draft model computed because it had rested.
        switched_off: times that a request with drafts in the step before got none.
        predicted_seconds: forecast time of steps, if the policy makes forecasts.
        measured_seconds: measured time of the same steps.
        expected_saved_seconds: time that drafting was expected to save in these steps.
        realised_saved_seconds: time that it saved, compared with the forecast for steps without drafts.
        acceptance: the policy's latest estimate per position; empty if it has none.
        max_draft_tokens: one number, the latest limit of the operator's switch; empty if it has not changed.
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
    verified_by_kind: list[int] = field(default_factory=list)
    accepted_by_kind: list[int] = field(default_factory=list)
    ended: list[tuple[float, float]] = field(default_factory=list)
    chosen_lengths: list[int] = field(default_factory=list)
    without_drafts: dict[str, int] = field(default_factory=dict)
    requests_without_salt: int = 0
    requests_lost: int = 0
    drafter_passes: int = 0
    drafter_rests: int = 0
    stale_requests: int = 0
    caught_up_tokens: int = 0
    switched_off: int = 0
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    expected_saved_seconds: float = 0.0
    realised_saved_seconds: float = 0.0
    acceptance: list[float] = field(default_factory=list)
    max_draft_tokens: list[int] = field(default_factory=list)

    def count_verified(self, drafted: int, accepted: int, num_drafts: int = 1) -> None:
        """Adds verified drafts of equal length and equal number of accepted tokens."""
        _grow(self.verified_per_position, [num_drafts] * drafted)
        _grow(self.accepted_per_position, [num_drafts] * accepted)

    def count_kinds(self, kinds: Sequence[int], accepted: int) -> None:
        """Adds a verified draft of a grammar, of which the first `accepted` tokens were accepted."""
        for i, kind in enumerate(kinds):
            _grow(self.verified_by_kind, [0] * kind + [1])
            _grow(self.accepted_by_kind, [0] * kind + [int(i < accepted)])

    def count_chosen(self, length: int, num_requests: int = 1) -> None:
        """Adds requests with the same planned draft length."""
        lengths = self.chosen_lengths
        if length >= len(lengths):
            lengths += [0] * (length + 1 - len(lengths))
        lengths[length] += num_requests

    def count_drafts(self, lengths: Sequence[int], seconds: float) -> None:
        """Adds a proposer's work in a step.

        Args:
            lengths: draft tokens per request; 0 is no draft.
            seconds: time of the proposer.
        """
        self.proposer_seconds += seconds
        self.drafts += len(lengths) - lengths.count(0)
        self.draft_tokens += sum(lengths)

    def count_error(self, reason: str) -> None:
        """Adds one proposer error."""
        _add(self.proposer_errors, {reason: 1})

    def count_without_drafts(self, reason: str) -> None:
        """Adds one request that is served without drafts."""
        _add(self.without_drafts, {reason: 1})

    def add(self, other: Self) -> None:
        """Adds another step of the same proposer."""
        for name, more in vars(other).items():
            if not more or name == "method":
                continue
            own = getattr(self, name)
            if isinstance(more, dict):
                _add(own, more)
            elif name in ("acceptance", "max_draft_tokens"):
                setattr(self, name, more)
            elif name == "ended":
                self.ended += more
            elif isinstance(more, list):
                _grow(own, more)
            else:
                setattr(self, name, own + more)

    def to_payload(self) -> dict[str, Any]:
        """Returns plain values that are not zero or empty, for sending between processes."""
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """The inverse of `to_payload`."""
        return cls(**payload)


class Timing:
    """Adds the duration of a `with` block to counters."""

    __slots__ = ("_counters", "_name", "_start")

    def __init__(self, counters: StepCounters, name: Literal["verification_seconds", "tree_seconds"]) -> None:
        """Names the attribute of `counters` to add to."""
        self._counters, self._name = counters, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._start
        setattr(self._counters, self._name, getattr(self._counters, self._name) + seconds)


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    """Adds `more` to `counts`, key by key."""
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count


def _grow(counts: list[int], more: list[int]) -> None:
    """Adds `more` to `counts`, index by index."""
    counts += [0] * (len(more) - len(counts))
    for i, count in enumerate(more):
        counts[i] += count
