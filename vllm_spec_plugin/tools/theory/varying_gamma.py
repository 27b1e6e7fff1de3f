"""Section 3.5 of Leviathan et al. (2023): what choosing K anew in every step could gain at most.

The paper gives the tokens of an oracle for K, 1 / (1 - a) with the acceptance rate a, and says that it is "up to ~60%"
faster than a fixed K; the time is derived here. The oracle knows how many draft tokens n would be accepted in this
step, P(n) = a^n (1 - a). It drafts these and no more, and the target still verifies them: n + 1 tokens for the time of
1 + n c target steps. With E[n] = a / (1 - a), tokens over time are

    (1 / (1 - a)) / (1 + c a / (1 - a)) = 1 / (1 - a (1 - c)).

For small c near a = 1, let r = c / (1 - a), and x = K (1 - a) for a fixed K. Then the ratio of the two speedups comes
to (1 + r x) / ((1 - e^-x)(1 + r)), at the x where it is least. As a function of r that is largest where this x is 1,
at r = 1 / (e - 2): e / (e - 1), 58% more.
"""

import math

from vllm_spec_plugin.tools.theory.leviathan import best_draft_length, check_cost, check_rate, speedup

# What the gain comes near to for small c, where the acceptance rate is worst for a fixed K: 1 - c (e - 2).
LARGEST_GAIN = math.e / (math.e - 1)


def oracle_speedup(acceptance_rate: float, cost_ratio: float) -> float:
    """1 / (1 - a (1 - c)): time without speculation over time with an oracle for K; infinite at a = 1, c = 0.

    Args:
        acceptance_rate: a, from 0 to 1.
        cost_ratio: c, one draft step over one target step, from 0; from 1 up even an oracle drafts nothing.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_rate(acceptance_rate)
    check_cost(cost_ratio)
    time_per_token = 1 - acceptance_rate * (1 - min(cost_ratio, 1.0))
    return math.inf if time_per_token == 0 else 1 / time_per_token


def oracle_gain(acceptance_rate: float, cost_ratio: float) -> float:
    """The oracle's speedup over that of the best fixed K; 1 where longer fixed drafts come as near as one likes.

    Raises:
        ValueError: one of them is not in its range.
    """
    length = best_draft_length(acceptance_rate, cost_ratio)
    if length is None:
        return 1.0
    return oracle_speedup(acceptance_rate, cost_ratio) / speedup(acceptance_rate, length, cost_ratio)
