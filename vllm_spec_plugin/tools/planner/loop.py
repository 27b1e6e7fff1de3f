"""The traffic in a closed loop. Pure."""

import random
import statistics
from collections.abc import Sequence

from vllm_spec_plugin.tools.bench.load.records import LoadJob, Phase, Request
from vllm_spec_plugin.tools.planner.traffic import Prompt

# Requests differ in length by as much, so that they do not all end in one step.
_SHORTEST, _LONGEST = 0.5, 1.5


def load_job(prompts: Sequence[Prompt], streams: int, number: int, seed: int, num_requests: int) -> LoadJob:
    """Returns a number of requests per stream, in another order for each round.

    Args:
        prompts: at least one; all come once before one comes again.
        streams: requests in flight.
        number: of the round.
        seed: of the first round.
        num_requests: that each stream gets through, about.
    """
    rng = random.Random(f"{seed} {number} {streams}")
    count = streams * (num_requests + 2)
    order: list[Prompt] = []
    while len(order) < count:
        order += rng.sample(prompts, len(prompts))
    requests = [
        Request(one.workload, one.text, one.temperature, _varied(one.num_tokens, rng), one.prediction)
        for one in order[:count]
    ]
    mean = statistics.fmean(request.num_tokens for request in requests)
    return LoadJob(streams, (Phase(tuple(requests), round(streams * num_requests * mean)),), seed + number)


def _varied(num_tokens: int, rng: random.Random) -> int:
    return max(round(num_tokens * rng.uniform(_SHORTEST, _LONGEST)), 2)
