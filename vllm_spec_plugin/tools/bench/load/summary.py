"""From runs under load to figures. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_spec_plugin.tools.bench.load.records import LoadRun
from vllm_spec_plugin.tools.bench.spread import Spread, ratio

# A figure that every round has of its own.
Figure = Literal["tokens_per_second", "ttft", "tpot"]


@dataclass(frozen=True)
class LoadSummary:
    """What one arm did with one workload and number of streams.

    Attributes:
        tokens_per_second: per round, output tokens over the whole time.
        ttft: per round that has any, the median time to first token, in seconds; see `records.Progress`.
        tpot: per round that has any, the median time per output token, in seconds.
        acceptance_length: 1 + accepted / drafts, of all rounds; None without drafts.
        draft_length: drafted tokens that were verified, per request and step that brought it something.
        tokens_by_kind: output tokens of all rounds by kind of request.
    """

    tokens_per_second: dict[int, float]
    ttft: dict[int, float]
    tpot: dict[int, float]
    acceptance_length: float | None
    draft_length: float
    tokens_by_kind: dict[str, int]

    @property
    def median(self) -> float:
        """Tokens per second, of the rounds."""
        return statistics.median(self.tokens_per_second.values())

    def spread(self, figure: Figure) -> Spread | None:
        """Of the rounds; None where none has it."""
        rounds: dict[int, float] = getattr(self, figure)
        return Spread.of(rounds.values())


# By arm, workload and streams.
Summaries = Mapping[tuple[str, str, int], LoadSummary]


def summarise(runs: Sequence[LoadRun], arm: str, workload: str, streams: int) -> LoadSummary:
    """The figures of one arm, workload and number of streams; of `runs` at least one is of these."""
    own = [run for run in runs if (run.arm, run.workload, run.streams) == (arm, workload, streams)]
    phases = [phase for run in own for phase in run.answer.phases]
    drafts = sum(phase.num_drafts for phase in phases)
    by_kind: dict[str, int] = {}
    for phase in phases:
        for kind, count in phase.progress.tokens_by_kind.items():
            by_kind[kind] = by_kind.get(kind, 0) + count
    return LoadSummary(
        {run.round: run.answer.tokens_per_second for run in own},
        _medians({run.round: [t for phase in run.answer.phases for t in phase.progress.ttft] for run in own}),
        _medians({run.round: [t for phase in run.answer.phases for t in phase.progress.tpot] for run in own}),
        1 + sum(phase.num_accepted_tokens for phase in phases) / drafts if drafts else None,
        sum(phase.num_draft_tokens for phase in phases) / sum(phase.progress.request_steps for phase in phases),
        by_kind,
    )


def best_fixed(summaries: Summaries, fixed: Sequence[str], workload: str, streams: int) -> str | None:
    """Which of the arms `fixed` has the highest median here; None if there are none."""
    return max(fixed, key=lambda arm: summaries[arm, workload, streams].median, default=None)


def over(
    summaries: Summaries,
    arm: str,
    other: str | None,
    workload: str,
    streams: int,
    figure: Figure = "tokens_per_second",
) -> Spread | None:
    """The arm's figure over another's, round by round; None over nobody, or if no round has both."""
    if other is None:
        return None
    ours, theirs = summaries[arm, workload, streams], summaries[other, workload, streams]
    return ratio(getattr(ours, figure), getattr(theirs, figure))


def _medians(rounds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {number: statistics.median(values) for number, values in rounds.items() if values}
