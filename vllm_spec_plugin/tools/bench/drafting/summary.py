"""From runs to figures: medians, and the limit of the speedup. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.tools.bench.records import Run, Step


@dataclass(frozen=True)
class Shares:
    """Where an arm's time goes, in seconds of all its runs.

    Attributes:
        drafting: drafting in the regular steps: those of a whole batch after its prompts, with K drafts each.
        target: the rest of the regular steps.
        prompts: steps with a prompt in them.
        irregular: steps in which requests had ended, or had fewer than K drafts.
        between: outside of any step: taking requests in, handing answers out.
    """

    drafting: float
    target: float
    prompts: float
    irregular: float
    between: float

    @property
    def total(self) -> float:
        return self.drafting + self.target + self.prompts + self.irregular + self.between


@dataclass(frozen=True)
class ArmSummary:
    """What one arm did with one batch size and temperature. Per-round figures are by the round's number.

    Attributes:
        arm: its name.
        batch: requests at once.
        temperature: theirs.
        num_draft_tokens: K; 0 without speculation.
        tokens_per_second: per round, output tokens over the whole time.
        target_step: per round, median seconds of a regular step, K + 1 tokens per request, without its drafting.
        draft_step: per round, median seconds in the drafter over K.
        draft_step_prepared: the same with what the runner does to call the drafter.
        tree_step: per round, median seconds that a regular step takes longer for its drafts being trees.
        tree_share: per round, median share of these in the step.
        acceptance_lengths: per round that has drafts.
        acceptance_length: 1 + accepted / drafts, of all rounds; None without drafts.
        acceptance_rate: accepted / drafted, of all rounds; None without drafts.
        shares: where its time went.
        parts: seconds of drafting by part, of the profiled runs.
    """

    arm: str
    batch: int
    temperature: float
    num_draft_tokens: int
    tokens_per_second: dict[int, float]
    target_step: dict[int, float]
    draft_step: dict[int, float]
    draft_step_prepared: dict[int, float]
    tree_step: dict[int, float]
    tree_share: dict[int, float]
    acceptance_lengths: dict[int, float]
    acceptance_length: float | None
    acceptance_rate: float | None
    shares: Shares
    parts: dict[str, float]


@dataclass(frozen=True)
class Limit:
    """How fast one arm can be against another that drafts nothing, as ratios of tokens per second; medians of rounds.

    Attributes:
        free: the acceptance length: if drafting took no time and K + 1 tokens took the target as long as one.
        verifying: with the time that K + 1 tokens take.
        drafting: with the time that drafting takes too.
        measured: as it was.
        rest: the share of `drafting` that is lost besides.
    """

    free: float
    verifying: float
    drafting: float
    measured: float
    rest: float


def summarise(
    runs: Sequence[Run], profiled: Sequence[Run], arm: str, batch: int, temperature: float, num_draft_tokens: int
) -> ArmSummary:
    """The figures of one arm, batch size and temperature.

    Args:
        runs: of all arms; at least one is of this.
        profiled: those that only tell the parts of drafting.
        arm: whose.
        batch: which.
        temperature: which.
        num_draft_tokens: the arm's K.
    """
    key = (arm, batch, temperature)
    own = [run for run in runs if (run.arm, run.batch, run.temperature) == key]
    drafts = sum(run.answer.num_drafts for run in own)
    drafted = sum(run.answer.num_draft_tokens for run in own)
    accepted = sum(run.answer.num_accepted_tokens for run in own)
    parts: dict[str, float] = {}
    for run in profiled:
        if (run.arm, run.batch, run.temperature) == key:
            for part, seconds in run.answer.parts.items():
                parts[part] = parts.get(part, 0.0) + seconds
    target, proposer, drafting, tree, tree_share = {}, {}, {}, {}, {}
    for run in own:
        steps = [step for step in run.answer.steps if _is_regular(step, batch, num_draft_tokens)]
        if steps:
            target[run.round] = statistics.median(step.seconds - step.drafting_seconds for step in steps)
        if any(step.tree_seconds for step in steps):
            tree[run.round] = statistics.median(step.tree_seconds for step in steps)
            tree_share[run.round] = statistics.median(step.tree_seconds / step.seconds for step in steps)
        whole = [step for step in steps if step.num_drafted and step.num_drafted == num_draft_tokens]
        if whole:
            proposer[run.round] = statistics.median(step.proposer_seconds / num_draft_tokens for step in whole)
            drafting[run.round] = statistics.median(step.drafting_seconds / num_draft_tokens for step in whole)
    return ArmSummary(
        arm,
        batch,
        temperature,
        num_draft_tokens,
        {run.round: sum(map(len, run.answer.token_ids)) / run.answer.seconds for run in own},
        target,
        proposer,
        drafting,
        tree,
        tree_share,
        {run.round: 1 + run.answer.num_accepted_tokens / run.answer.num_drafts for run in own if run.answer.num_drafts},
        1 + accepted / drafts if drafts else None,
        accepted / drafted if drafted else None,
        _shares(own, batch, num_draft_tokens),
        parts,
    )


def limit(arm: ArmSummary, none: ArmSummary) -> Limit | None:
    """The limit of `arm` against `none`, the same work without speculation; None if no round has all it takes.

    With A the acceptance length, T(n) a step with n tokens per request and d a draft step: A,
    A T(1) / T(K + 1), and A T(1) / (T(K + 1) + K d). Reckoned round by round: rounds have other texts.
    """
    rounds = (arm.acceptance_lengths.keys() & arm.target_step.keys() & arm.draft_step_prepared.keys()) & (
        none.target_step.keys() & none.tokens_per_second.keys()
    )
    found = []
    for number in rounds:
        free, several = arm.acceptance_lengths[number], arm.target_step[number]
        gained = free * none.target_step[number]
        drafting = gained / (several + arm.num_draft_tokens * arm.draft_step_prepared[number])
        measured = arm.tokens_per_second[number] / none.tokens_per_second[number]
        found.append((free, gained / several, drafting, measured, 1 - measured / drafting))
    return Limit(*(statistics.median(values) for values in zip(*found, strict=True))) if found else None


def median(rounds: Mapping[int, float]) -> float:
    """Of the rounds; at least one has the figure."""
    return statistics.median(rounds.values())


def _is_regular(step: Step, batch: int, num_draft_tokens: int) -> bool:
    return not step.in_prompt and step.num_requests == batch and step.num_tokens == batch * (num_draft_tokens + 1)


def _shares(runs: Sequence[Run], batch: int, num_draft_tokens: int) -> Shares:
    drafting = target = prompts = irregular = between = 0.0
    for run in runs:
        between += run.answer.seconds - sum(step.seconds for step in run.answer.steps)
        for step in run.answer.steps:
            if step.in_prompt:
                prompts += step.seconds
            elif _is_regular(step, batch, num_draft_tokens):
                drafting += step.drafting_seconds
                target += step.seconds - step.drafting_seconds
            else:
                irregular += step.seconds
    return Shares(drafting, target, prompts, irregular, between)
