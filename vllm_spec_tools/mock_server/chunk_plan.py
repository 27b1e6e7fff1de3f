"""Which chunks a response has, when they leave, and whether and how it fails. Pure."""

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from vllm_spec_tools.mock_server.options import MockOptions


class Failure(StrEnum):
    """Ways of failing."""

    # An HTTP error in place of a response.
    REFUSED = "refused"
    # An error event within the stream, then its end.
    ERROR_EVENT = "error_event"
    # The connection ends within the stream.
    CUT = "cut"


@dataclass(frozen=True)
class ChunkStep:
    """A step of the engine, which is a chunk of the stream.

    Attributes:
        num_drafts: tokens that were drafted for the step; 0 for none.
    """

    at: float
    num_tokens: int
    num_drafts: int


@dataclass(frozen=True)
class ResponsePlan:
    """A response.

    Attributes:
        fails_at: seconds after the request; 0 without a failure.
    """

    steps: tuple[ChunkStep, ...]
    failure: Failure | None = None
    fails_at: float = 0.0


def draft_length(tokens_per_chunk: float) -> int:
    """Draft length K that a mean of tokens per chunk is made with: twice the drafts to be accepted, rounded up."""
    return math.ceil(2 * (tokens_per_chunk - 1))


def plan_response(options: MockOptions, number: int, num_tokens: int) -> ResponsePlan:
    """Plans a response: the same one for the same arguments.

    The first chunk has one token, as after a prompt in vLLM. Each other has 1 + Binomial(K, (m - 1) / K) tokens, m the
    requested mean and K = `draft_length(m)`: about every second draft is accepted, the mean is m, the sizes are 1 to
    K + 1. The last chunk ends where the output does. With m = 1 nothing is drafted. Sizes depend on the request's
    number, not its prompt: a load test that repeats one prompt meets all sizes.
    """
    rng = random.Random(f"steps {options.seed} {number}")
    drafts = draft_length(options.tokens_per_chunk)
    chance = (options.tokens_per_chunk - 1) / drafts if drafts else 0.0
    at = options.ttft_ms / 1000
    steps = [ChunkStep(at, 1, 0)]
    left = num_tokens - 1
    while left:
        accepted = sum(rng.random() < chance for _ in range(drafts))
        size = min(1 + accepted, left)
        at += options.itl_ms / 1000
        steps.append(ChunkStep(at, size, drafts))
        left -= size
    failure = planned_failure(options.error_rate, number)
    if failure is None:
        return ResponsePlan(tuple(steps))
    if failure is Failure.REFUSED:
        return ResponsePlan((), failure)
    delivered = (len(steps) + 1) // 2
    fails_at = steps[min(delivered, len(steps) - 1)].at
    return ResponsePlan(tuple(steps[:delivered]), failure, fails_at)


def planned_failure(error_rate: float, number: int) -> Failure | None:
    """Chooses the failure of the request of this number, if it has one.

    Failures are spread evenly, so every run of requests has its share of them: at 0.25 every fourth fails, and the
    kinds take turns.
    """
    # As written, not as rounded: 0.1 must mean exactly one in ten.
    rate = Fraction(str(error_rate))
    before, after = math.floor(number * rate), math.floor((number + 1) * rate)
    return tuple(Failure)[before % len(Failure)] if after > before else None
