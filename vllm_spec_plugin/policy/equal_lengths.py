"""Plans of equal lengths, where steps of unequal ones cost more: a full CUDA graph is replayed for equal ones only."""

import numpy as np

from vllm_spec_plugin.jit import Ints
from vllm_spec_plugin.policy.allocation import ASKING, POSITION, TOKEN, CandidateDrafts, Value


def best_with_even(
    candidates: CandidateDrafts, lengths: Ints, value: Value, uneven_seconds: float
) -> tuple[Ints, Value]:
    """Returns the better one of a plan and of the best plan of equal lengths; of a single proposer.

    Args:
        candidates: expected drafts, of all requests of the step.
        lengths: [n, 1], the plan's draft tokens per request.
        value: of that plan, as if unequal lengths cost nothing.
        uneven_seconds: seconds by which a step takes longer if its requests have unequal lengths.

    Returns:
        The plan's lengths and its value, with that cost where it applies.
    """
    if candidates.others or lengths.min() == lengths.max():
        return lengths, value
    best, chosen = value._replace(seconds=value.seconds + uneven_seconds), lengths
    num_requests, costs = len(lengths), candidates.drafting[0]
    gains, rows = candidates.gains[0].sum(0).cumsum(), candidates.draft_tokens[0].sum(0).cumsum()
    for length in range(1, int(candidates.limits.min()) + 1):
        if num_requests * length > candidates.max_draft_tokens:
            break
        drafted = float(rows[length - 1])
        step = float(np.interp(drafted, np.arange(len(candidates.step)), candidates.step))
        seconds = step + costs[ASKING] + costs[POSITION] * length + costs[TOKEN] * drafted
        even = Value(num_requests * length, num_requests + float(gains[length - 1]), drafted, seconds)
        if even.tokens * best.seconds > best.tokens * even.seconds:
            best, chosen = even, np.full_like(lengths, length)
    if candidates.step[0] * best.tokens < num_requests * best.seconds:
        return np.zeros_like(lengths), Value(0, float(num_requests), 0.0, float(candidates.step[0]))
    return chosen, best
