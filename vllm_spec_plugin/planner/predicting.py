"""The speedup of a candidate, from what its steps cost and how its drafts fare: theorem 3.8, generalised. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.planner.acceptance import Acceptance
from vllm_spec_plugin.planner.curves import DraftingCost, StepCurve
from vllm_spec_plugin.theory.generalised import StepCosts, conditional_rates, expected_tokens


@dataclass(frozen=True)
class Costs:
    """What a candidate's steps cost at one concurrency, and those without speculation, in seconds.

    Attributes:
        concurrency: requests at once, B.
        plain_step: a step with one token per request, without speculation.
        plain_prompt: a prompt without speculation, in everybody's time.
        curve: the target's step by tokens.
        drafting: of a step.
        prompt: a prompt, with what the proposer does of it.
    """

    concurrency: int
    plain_step: float
    plain_prompt: float
    curve: StepCurve
    drafting: DraftingCost
    prompt: float


@dataclass(frozen=True)
class Load:
    """A workload and how a candidate's drafts fare in it.

    Attributes:
        share: of the traffic's requests.
        num_tokens: output tokens of each.
        by_length: acceptance by draft length, at least one.
    """

    share: float
    num_tokens: int
    by_length: Mapping[int, Acceptance]

    def acceptance(self, tokens: int) -> Acceptance:
        """As measured with that length or the next longer one."""
        return self.by_length[min(length for length in self.by_length if length >= tokens)]


@dataclass(frozen=True)
class Prediction:
    """What is expected of a candidate with one draft length at one concurrency.

    Attributes:
        tokens: the draft length; 0 is none.
        tokens_per_step: output tokens of a request in a step.
        step_seconds: with drafting.
        draft_seconds: of which drafting.
        decode_speedup: of the steps alone, which is theorem 3.8 with measured costs and acceptance.
        speedup: of tokens per second, prompts included.
        tokens_per_second: of all requests together.
        tpot: seconds per output token of a request after its first, others' prompts included.
    """

    tokens: int
    tokens_per_step: float
    step_seconds: float
    draft_seconds: float
    decode_speedup: float
    speedup: float
    tokens_per_second: float
    tpot: float


def predict(costs: Costs, loads: Sequence[Load], tokens: int, *, is_tree: bool = False) -> Prediction:
    """What a draft length is expected to do.

    Streams are a mixture of the workloads, each of which has so many of the requests as its share says, and longer
    where its drafts fare worse. A request is its prompt and its steps; while it is at it, each of the others has a
    prompt once too.

    Args:
        costs: of the candidate.
        loads: at least one.
        tokens: draft tokens of a request, those of a whole tree; 0 is no speculation.
        is_tree: whether the draft is a tree, whose places are levels.
    """
    batch = costs.concurrency
    outputs = sum(load.share * load.num_tokens for load in loads)
    plain_steps = sum(load.share * (load.num_tokens - 1) for load in loads)
    plain_seconds = plain_steps * costs.plain_step + batch * costs.plain_prompt
    if not tokens:
        tpot = (plain_steps * costs.plain_step + (batch - 1) * costs.plain_prompt) / plain_steps
        return Prediction(0, 1.0, costs.plain_step, 0.0, 1.0, 1.0, batch * outputs / plain_seconds, tpot)
    fares = [load.acceptance(tokens) for load in loads]
    depth = max(len(fare.accepted) for fare in fares) if is_tree else tokens
    steps = [
        load.share * (load.num_tokens - 1) / (1 + sum(fare.reached[:depth]))
        for load, fare in zip(loads, fares, strict=True)
    ]
    total = sum(steps)
    reached = [
        sum(part * fare.reached[place] for part, fare in zip(steps, fares, strict=True) if place < len(fare.reached))
        / total
        for place in range(depth)
    ]
    draft_share = sum(part * fare.draft_share for part, fare in zip(steps, fares, strict=True)) / total
    per_step = expected_tokens(conditional_rates(reached))
    lengths = [tokens] if is_tree else range(1, tokens + 1)
    step_costs = StepCosts(
        [costs.plain_step, *(_verifying(costs, length, draft_share) for length in lengths)],
        draft_fixed=costs.drafting.of(tokens) if is_tree else costs.drafting.fixed,
        draft_token=0.0 if is_tree else costs.drafting.token,
    )
    # A tree is one place: it is there or not.
    step = step_costs.step(step_costs.longest)
    seconds = total * step + batch * costs.prompt
    return Prediction(
        tokens,
        per_step,
        step,
        costs.drafting.of(tokens),
        per_step * step_costs.step(0) / step,
        plain_seconds / seconds,
        batch * outputs / seconds,
        (total * step + (batch - 1) * costs.prompt) / plain_steps,
    )


def _verifying(costs: Costs, length: int, draft_share: float) -> float:
    """Expected seconds of a target step whose requests each have a draft with that probability."""
    batch, share = costs.concurrency, min(draft_share, 1.0)
    return math.fsum(
        math.comb(batch, count) * share**count * (1 - share) ** (batch - count) * costs.curve.at(batch + count * length)
        for count in range(batch + 1)
    )


def best(costs: Costs, loads: Sequence[Load], choices: Sequence[int], *, is_tree: bool = False) -> Prediction:
    """The fastest of the draft lengths and of none, the least of equals."""
    found = [predict(costs, loads, tokens, is_tree=is_tree) for tokens in (0, *choices)]
    return max(found, key=lambda prediction: prediction.speedup)
