"""From runs under load to figures. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.bench.load.records import LoadRun
from vllm_spec_plugin.bench.summary import Spread, ratio


@dataclass(frozen=True)
class LoadSummary:
    """What one arm did with one workload and number of streams.

    Attributes:
        tokens_per_second: per round, output tokens over the whole time.
        acceptance_length: 1 + accepted / drafts, of all rounds; None without drafts.
        draft_length: drafted tokens that were verified, per request and step that brought it something.
        tokens_by_kind: output tokens of all rounds by kind of request.
    """

    tokens_per_second: dict[int, float]
    acceptance_length: float | None
    draft_length: float
    tokens_by_kind: dict[str, int]

    @property
    def median(self) -> float:
        """Tokens per second, of the rounds."""
        return statistics.median(self.tokens_per_second.values())


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
        1 + sum(phase.num_accepted_tokens for phase in phases) / drafts if drafts else None,
        sum(phase.num_draft_tokens for phase in phases) / sum(phase.progress.request_steps for phase in phases),
        by_kind,
    )


def best_fixed(summaries: Summaries, fixed: Sequence[str], workload: str, streams: int) -> str | None:
    """Which of the arms `fixed` has the highest median here; None if there are none."""
    return max(fixed, key=lambda arm: summaries[arm, workload, streams].median, default=None)


def over(summaries: Summaries, arm: str, other: str | None, workload: str, streams: int) -> Spread | None:
    """The arm's tokens per second over another's, round by round; None over nobody."""
    if other is None:
        return None
    ours, theirs = summaries[arm, workload, streams], summaries[other, workload, streams]
    return ratio(ours.tokens_per_second, theirs.tokens_per_second)
