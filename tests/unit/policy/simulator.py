"""A server in numbers: requests with known acceptance, steps with known times, and a control that must find out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan, length_of, tried
from vllm_spec_plugin.policy.control import (
    Drafting,
    DraftLengthControl,
    DraftRequest,
    MeasuredStep,
    StepBatch,
    StepForecast,
)
from vllm_spec_plugin.policy.costs import ProposerTraits
from vllm_spec_plugin.policy.optimal import OptimalControl


class Cost(NamedTuple):
    """Drafting time of a proposer in a step."""

    pass_seconds: float  # Of each pass; a step has one per position of the longest planned draft.
    row_seconds: float  # Per draft token.
    any_seconds: float = 0.0  # Per step with a planned draft.


class Chance(NamedTuple):
    """Probabilities of a proposer's drafts for a request."""

    right: float  # That a draft token is accepted if those before it were.
    there: float = 1.0  # That there is a draft, of all planned tokens.


class MadeDraft(NamedTuple):
    """A request's draft, and who made it."""

    draft_plan: DraftPlan  # Proposers that may draft, with draft lengths.
    source: int | None  # Index of the proposer that drafted; None if none did.
    drafted: int  # Number of draft tokens.


# A GPU that waits for memory up to 64 tokens; this project's two cores; one that is busy with a single token.
STEP_TIMES: dict[str, Callable[[float], float]] = {
    "memory": lambda n: 0.020 * max(1.0, n / 64),
    "cores": lambda n: 0.045 * float(np.interp(n, [1, 5, 9, 33, 297], [1, 1.35, 1.75, 4.5, 38])),
    "busy": lambda n: 0.010 * n,
}

# What each proposer's drafts are worth to a request.
Chances = tuple[Chance, ...]


def alone(alphas: Sequence[float]) -> list[Chances]:
    """Requests with the only proposer's acceptance rates."""
    return [(Chance(alpha),) for alpha in alphas]


@dataclass(frozen=True)
class Server:
    """True times and costs of a simulated server."""

    step: Callable[[float], float]  # Seconds of a target step by its tokens.
    costs: tuple[Cost, ...]  # Of each proposer.
    most: int = 8  # K.
    noise: float = 0.05  # Standard deviation of a step's time, as a share.
    jump: float = 0.0  # Seconds that a target step takes longer if there are drafts in it at all.
    hidden: float = 0.0  # Seconds of a step that drafts, beside those that the proposer reports.
    hidden_per_request: float = 0.0  # Of these, per request that is drafted for.
    is_in_step: bool = False  # Whether the only proposer drafts within the step, which alone is timed.
    # Of drafts that are trees: the accepted nodes of one with that many.
    nodes: Callable[[np.random.Generator, int], tuple[int, ...]] | None = None

    def step_with(self, num_requests: int, num_drafted: float) -> float:
        """Seconds of a target step."""
        return self.step(num_requests + num_drafted) + (self.jump if num_drafted else 0.0)

    def drafting(self, lane: int, longest: float, count: float, comes: float = 1.0) -> float:
        """Seconds of a proposer that is asked for up to `longest` tokens and gives `count` in all."""
        cost = self.costs[lane]
        return cost.any_seconds * comes + cost.pass_seconds * longest + cost.row_seconds * count


def control_for(server: Server) -> OptimalControl:
    """One that knows what a probe at start-up told of the steps, a fifth too little, and nothing of the drafts."""
    traits = ProposerTraits(server.most, server.nodes is not None, server.is_in_step)
    control = OptimalControl([traits] * len(server.costs), 64, 2048)
    control.probed([(n, 0.8 * server.step(n)) for n in (1, 2, 4, 8, 16, 32, 64, 128)])
    return control


def lengths_of(planned: Sequence[DraftPlan]) -> list[int]:
    """Reads each request's draft length for the only proposer."""
    return [length_of(draft_plan, 0) for draft_plan in planned]


def expected_tokens(alpha: float, length: int) -> float:
    """Computes the expected tokens of a step with a draft of that length: equation 1 of Leviathan et al. (2023)."""
    return length + 1.0 if alpha == 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def expected_rate(server: Server, chances: Sequence[Chances], draft_plan: Sequence[DraftPlan]) -> float:
    """Expected tokens per expected second, if the step takes what it would with the expected number of drafts."""
    tokens, rows, seconds = 0.0, 0.0, 0.0
    count = [0.0] * len(server.costs)
    asked_for: list[list[tuple[int, float]]] = [[] for _ in server.costs]
    for of_request, own in zip(chances, draft_plan, strict=True):
        comes = 1.0
        for lane, length in own:
            right, there = of_request[lane]
            asked_for[lane].append((length, comes))
            tokens += comes * there * expected_tokens(right, length)
            count[lane] += comes * there * length
            comes *= 1 - there
        tokens += comes
    for lane, lengths in enumerate(asked_for):
        longest, nobody_longer = 0.0, 1.0
        for length, comes in sorted(lengths, reverse=True):
            longest += length * nobody_longer * comes
            nobody_longer *= 1 - comes
        rows += count[lane]
        if lengths:
            seconds += server.drafting(lane, longest, count[lane], 1 - nobody_longer)
    return tokens / (seconds + server.step_with(len(chances), rows))


def all_plans(num_lanes: int, most: int) -> list[DraftPlan]:
    """Every order of every choice of proposers, with every length."""
    return [
        tuple(zip(lanes, lengths, strict=True))
        for count in range(num_lanes + 1)
        for lanes in permutations(range(num_lanes), count)
        for lengths in product(range(1, most + 1), repeat=count)
    ]


def oracle(server: Server, chances: Sequence[Chances]) -> float:
    """The most expected tokens per second that plans can reach which are the same for equal requests."""
    kinds = sorted(set(chances))
    best = 0.0
    for chosen in product(all_plans(len(server.costs), server.most), repeat=len(kinds)):
        of_kind = dict(zip(kinds, chosen, strict=True))
        best = max(best, expected_rate(server, chances, [of_kind[kind] for kind in chances]))
    return best


@dataclass
class Outcome:
    """Record of a simulation."""

    draft_plans: list[list[DraftPlan]] = field(default_factory=list)  # Of each step and request.
    # Expected output tokens, given who drafted how much, and seconds of each step, without noise.
    by_step: list[tuple[float, float]] = field(default_factory=list)

    def rate(self, first: int = 0, last: int | None = None) -> float:
        """Expected tokens per second from one step to another."""
        tokens, seconds = (sum(column) for column in zip(*self.by_step[first:last], strict=True))
        return tokens / seconds


def simulate(
    control: DraftLengthControl,
    server: Server,
    chances: Callable[[int], Sequence[Chances]],
    num_steps: int,
    seed: int,
    limits: Sequence[tuple[int, ...]] | None = None,
) -> Outcome:
    """Serves the same requests for a number of steps.

    Args:
        control: what decides.
        server: what is true.
        chances: of each step, what drafts are worth to each request.
        num_steps: how many.
        seed: of acceptance and noise.
        limits: of each request, per proposer; the server's most if None.
    """
    rng, guesses = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    outcome = Outcome()
    num_requests, num_lanes = len(chances(0)), len(server.costs)
    limits = limits or [(server.most,) * num_lanes] * num_requests
    batch = StepBatch(num_requests, num_requests, 100 * num_requests, server.most * num_requests)
    made: list[MadeDraft] = [MadeDraft((), None, 0)] * num_requests
    forecast: StepForecast | None = None
    num_output = [0] * num_requests
    for number in range(num_steps):
        to_draft = [
            DraftRequest(f"r{i}", limit, (0,) * num_lanes, count)
            for i, (limit, count) in enumerate(zip(limits, num_output, strict=True))
        ]
        of_requests = chances(number)
        expected = forecast
        planned: list[DraftPlan] = [()] * num_requests
        if control.begin_step(num_requests):
            planned = control.plan(to_draft, batch)
        forecast = control.forecast
        tokens, num_verified, num_accepted = 0.0, 0, 0
        for request, of_request, draft in zip(to_draft, of_requests, made, strict=True):
            alpha = 0.0 if draft.source is None else of_request[draft.source].right
            nodes = server.nodes(rng, draft.drafted) if server.nodes else None
            accepted = len(nodes) if nodes else 0
            while not server.nodes and accepted < draft.drafted and rng.random() < alpha:
                accepted += 1
            control.verified(request.request_id, draft.draft_plan, draft.source, draft.drafted, accepted, nodes=nodes)
            tokens += expected_tokens(alpha, draft.drafted)
            num_verified += draft.drafted
            num_accepted += accepted
            num_output[int(request.request_id[1:])] += accepted + 1
        made = [_draft(draft_plan, own, guesses) for draft_plan, own in zip(planned, of_requests, strict=True)]
        drafting = [_drafting(server, lane, made) for lane in range(num_lanes)]
        noise = np.maximum(1 + server.noise * rng.standard_normal(1 + num_lanes), 0.1).tolist()
        seconds = server.step_with(num_requests, num_verified)
        num_asked = sum(map(bool, planned))
        if num_asked:
            seconds += server.hidden + server.hidden_per_request * num_asked
        noisy = [
            Drafting(done.longest, done.num_drafted, 0, done.seconds * factor)
            for done, factor in zip(drafting, noise[1:], strict=True)
        ]
        total = seconds * noise[0] + sum(done.seconds for done in noisy)
        passes = 0
        if server.is_in_step:
            passes = noisy[0].longest
            noisy = [Drafting(passes, noisy[0].num_drafted, 0, 0.0, is_timed=False)]
        num_tokens = num_requests + num_verified
        control.measured(
            MeasuredStep(
                num_tokens,
                num_requests,
                batch.context,
                total,
                tuple(noisy),
                has_drafts=num_verified > 0,
                forecast=expected,
                num_drafts=num_verified,
                num_accepted=num_accepted,
                drafter_passes=passes,
            )
        )
        outcome.by_step.append((tokens, seconds + sum(done.seconds for done in drafting)))
        outcome.draft_plans.append(planned)
    return outcome


def _draft(draft_plan: DraftPlan, chances: Chances, rng: np.random.Generator) -> MadeDraft:
    """Simulates a request's draft: its proposer and its length."""
    for lane, length in draft_plan:
        if chances[lane].there == 1 or rng.random() < chances[lane].there:
            return MadeDraft(draft_plan, lane, length)
    return MadeDraft(draft_plan, None, 0)


def _drafting(server: Server, lane: int, made: Sequence[MadeDraft]) -> Drafting:
    """Simulates a proposer's work in a step."""
    longest = max(length_of(tried(draft.draft_plan, draft.source), lane) for draft in made)
    count = sum(draft.drafted for draft in made if draft.source == lane)
    return Drafting(longest, count, 0, server.drafting(lane, longest, count) if longest else 0.0)
