"""A server in numbers: requests with known acceptance, steps with known times, and a control that must find out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.control import Batch, DraftLengthControl, Measured, Wish


@dataclass(frozen=True)
class Server:
    """What is true.

    Attributes:
        step: seconds of a target step by its tokens.
        pass_seconds: of each of the proposer's passes, one per place of the longest draft.
        row_seconds: per draft token.
        most: K.
        noise: standard deviation of a step's time, as a share.
    """

    step: Callable[[float], float]
    pass_seconds: float
    row_seconds: float
    most: int = 8
    noise: float = 0.05

    def seconds(self, lengths: Sequence[int]) -> float:
        """Of a step that verifies drafts of these lengths and makes others like them."""
        drafting = self.pass_seconds * max(lengths, default=0) + self.row_seconds * sum(lengths)
        return self.step(len(lengths) + sum(lengths)) + drafting


def expected_tokens(alpha: float, length: int) -> float:
    """Of a step with a draft of that length: equation 1 of Leviathan et al. (2023)."""
    return length + 1.0 if alpha == 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def oracle(server: Server, alphas: Sequence[float]) -> float:
    """The most expected tokens per second that draft lengths can reach which are the same for equal requests."""
    kinds = sorted(set(alphas))
    best = 0.0
    for chosen in product(range(server.most + 1), repeat=len(kinds)):
        of_kind = dict(zip(kinds, chosen, strict=True))
        lengths = [of_kind[alpha] for alpha in alphas]
        tokens = sum(expected_tokens(alpha, length) for alpha, length in zip(alphas, lengths, strict=True))
        best = max(best, tokens / server.seconds(lengths))
    return best


@dataclass
class Outcome:
    """How a simulation went.

    Attributes:
        tokens: expected output tokens, given each step's draft lengths.
        seconds: without noise.
        lengths: of each step and request.
        by_step: expected output tokens and seconds of each step.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    lengths: list[list[int]] = field(default_factory=list)
    by_step: list[tuple[float, float]] = field(default_factory=list)

    def rate(self, first: int = 0, last: int | None = None) -> float:
        """Expected tokens per second from one step to another."""
        tokens, seconds = (sum(column) for column in zip(*self.by_step[first:last], strict=True))
        return tokens / seconds


def simulate(
    control: DraftLengthControl,
    server: Server,
    alphas: Callable[[int], Sequence[float]],
    num_steps: int,
    seed: int,
) -> Outcome:
    """Serves the same requests for a number of steps.

    Args:
        control: what decides.
        server: what is true.
        alphas: of each step, the requests' acceptance rates.
        num_steps: how many.
        seed: of acceptance and noise.
    """
    rng = np.random.default_rng(seed)
    outcome = Outcome()
    num_requests = len(alphas(0))
    request_ids = [f"r{i}" for i in range(num_requests)]
    drafted = [0] * num_requests
    context = 100 * num_requests
    for number in range(num_steps):
        right = alphas(number)
        wishes = [Wish(request_id, server.most) for request_id in request_ids]
        planned = control.plan(wishes, Batch(num_requests, num_requests, context, server.most * num_requests))
        seconds = server.step(num_requests + sum(drafted))
        drafting = server.pass_seconds * max(planned) + server.row_seconds * sum(planned)
        tokens = 0.0
        for request_id, alpha, length in zip(request_ids, right, drafted, strict=True):
            accepted = 0
            while accepted < length and rng.random() < alpha:
                accepted += 1
            if length:
                control.verified(request_id, length, length, accepted)
            control.advance(request_id, 1 + accepted)
            tokens += expected_tokens(alpha, length)
        noise = 1 + server.noise * rng.standard_normal(2)
        target, draft = seconds * max(noise[0], 0.1), drafting * max(noise[1], 0.1)
        control.measured(
            Measured(
                num_tokens=num_requests + sum(drafted),
                num_requests=num_requests,
                context=context,
                seconds=target + draft,
                draft_seconds=draft,
                longest=max(planned),
                num_drafted=sum(planned),
                caught_up=0,
            )
        )
        outcome.tokens += tokens
        outcome.seconds += seconds + drafting
        outcome.by_step.append((tokens, seconds + drafting))
        outcome.lengths.append(planned)
        drafted = planned
    return outcome
