"""Predicts a candidate's speedup from the cost of its steps and its acceptance: theorem 3.8, generalised. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vllm_spec_tools.bench.curves import DraftingCost, StepCurve
from vllm_spec_tools.bench.records import LoadAnswer
from vllm_spec_tools.planner.generalised import StepCosts, conditional_rates, expected_tokens


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
    def of(cls, answers: Iterable[LoadAnswer], positions: int) -> Self:
        """Adds up jobs whose drafts have at most `positions` tokens in sequence."""
        request_steps = drafts = 0
        accepted = [0] * positions
        for phase in (phase for answer in answers for phase in answer.phases):
            outputs = phase.progress.outputs
            # The first of a request's steps is that with its prompt.
            own = phase.progress.request_steps - len(outputs)
            request_steps += own
            drafts += phase.num_drafts
            for position, count in enumerate(phase.accepted_by_position[:positions]):
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


@dataclass(frozen=True)
class Costs:
    """Costs of a candidate's steps at one concurrency, and of those without speculation, in seconds.

    Attributes:
        concurrency: requests at once, B.
        plain_prompt: by how much a step is longer for a prompt in it, without speculation.
        prompt: by how much a step is longer for a prompt in it, with what the proposer does of it.
    """

    concurrency: int
    plain_step: float
    plain_prompt: float
    curve: StepCurve
    drafting: DraftingCost
    prompt: float


@dataclass(frozen=True)
class Load:
    """A workload and a candidate's acceptance in it.

    Attributes:
        by_length: acceptance by draft length, at least one.
    """

    share: float
    num_tokens: float
    by_length: Mapping[int, Acceptance]

    def acceptance(self, tokens: int) -> Acceptance:
        """As measured with that length or the next longer one."""
        return self.by_length[min(length for length in self.by_length if length >= tokens)]


@dataclass(frozen=True)
class Prediction:
    """Expected speed of a candidate with one draft length at one concurrency.

    Attributes:
        tokens: the draft length; 0 is none.
        decode_speedup: of the steps alone, which is theorem 3.8 with measured costs and acceptance.
        speedup: of tokens per second, prompts included.
        ttft: seconds of a step with a prompt in it.
        tpot: seconds per output token of a request after its first, others' prompts included.
    """

    tokens: int
    tokens_per_step: float
    step_seconds: float
    draft_seconds: float
    decode_speedup: float
    speedup: float
    tokens_per_second: float
    ttft: float
    tpot: float


def predict(costs: Costs, loads: Sequence[Load], tokens: int, *, is_tree: bool = False) -> Prediction:
    """Predicts the speed with a draft length.

    Streams are a mixture of the workloads. A request is the step with its prompt, which brings its first token, and the
    steps after it. While it is at it, a prompt of each other stream makes one of these steps longer.

    Args:
        tokens: draft tokens of a request, those of a whole tree; 0 is no speculation.
        is_tree: whether the draft is a tree; positions are its levels.
    """
    plain_steps = sum(load.share * (load.num_tokens - 1) for load in loads)
    plain_seconds = _seconds(costs, plain_steps, costs.plain_step, costs.plain_prompt)
    outputs = sum(load.share * load.num_tokens for load in loads)
    steps, per_step, step, drafting, prompt = plain_steps, 1.0, costs.plain_step, 0.0, costs.plain_prompt
    if tokens:
        steps, reached, draft_share = _mixed(loads, tokens, is_tree)
        # A tree is drafted whole or not at all.
        lengths = [tokens] if is_tree else range(1, tokens + 1)
        theory = StepCosts(
            [costs.plain_step, *(_verifying(costs, length, draft_share) for length in lengths)],
            draft_fixed=costs.drafting.of(tokens) if is_tree else costs.drafting.fixed,
            draft_token=0.0 if is_tree else costs.drafting.token,
        )
        per_step = expected_tokens(conditional_rates(reached))
        step, drafting, prompt = theory.step(theory.longest), costs.drafting.of(tokens), costs.prompt
    seconds = _seconds(costs, steps, step, prompt)
    return Prediction(
        tokens=tokens,
        tokens_per_step=per_step,
        step_seconds=step,
        draft_seconds=drafting,
        decode_speedup=per_step * costs.plain_step / step,
        speedup=plain_seconds / seconds,
        tokens_per_second=costs.concurrency * outputs / seconds,
        ttft=step + prompt,
        tpot=(seconds - step - prompt) / plain_steps,
    )


def fastest(predictions: Iterable[Prediction]) -> Prediction:
    """Returns the highest speedup, the first of equals."""
    return max(predictions, key=lambda prediction: prediction.speedup)


def _seconds(costs: Costs, steps: float, step: float, prompt: float) -> float:
    """Seconds from sending a request to its end."""
    return (1 + steps) * step + costs.concurrency * prompt


def _mixed(loads: Sequence[Load], tokens: int, is_tree: bool) -> tuple[float, list[float], float]:
    """Weights each workload by the steps that its requests take: more where fewer drafts are accepted.

    Returns:
        Mean steps of a request after its prompt; accepted tokens per request-step, [positions]; and the share of
        request-steps with a draft.
    """
    accepted_by_load = [load.acceptance(tokens) for load in loads]
    depth = max(len(found.accepted) for found in accepted_by_load) if is_tree else tokens
    steps = [
        load.share * (load.num_tokens - 1) / (1 + sum(found.reached[:depth]))
        for load, found in zip(loads, accepted_by_load, strict=True)
    ]
    weights = [part / sum(steps) for part in steps]
    pairs = list(zip(weights, accepted_by_load, strict=True))
    reached = [sum(weight * found.reached[i] for weight, found in pairs) for i in range(depth)]
    return sum(steps), reached, sum(weight * found.draft_share for weight, found in pairs)


def _verifying(costs: Costs, length: int, draft_share: float) -> float:
    """Expected seconds of a target step whose requests each have a draft with that probability."""
    batch, share = costs.concurrency, min(draft_share, 1.0)
    return math.fsum(
        math.comb(batch, count) * share**count * (1 - share) ** (batch - count) * costs.curve.at(batch + count * length)
        for count in range(batch + 1)
    )
