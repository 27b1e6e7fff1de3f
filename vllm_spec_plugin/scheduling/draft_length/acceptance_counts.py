"""Counts of accepted draft tokens, and the rates they stand for; compiled code only. acceptance.py has the formulas."""

import math

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints

LEAST, MOST = 0.001, 0.999
# Observations that the prior's start, and a position's lean on the one before it, are worth.
PRIOR_WEIGHT = 4.0
# How much more firmly a position is held to its request than a request to the proposer.
FIRMNESS = 8.0
_MOST_WEIGHT = 1e30
# Drafts of a step from which it is learned how much requests differ, and what each leaves of what was known of that.
_MOST_SCORED, _SCORE_FADE = 8, 0.998

# Places in a request's counts; sums over all requests have two more: k_r1 and n_r1 before each draft that tried i.
TRIED, ACCEPTED, GOOD, KNOWN = range(4)
# Places in what is known of a proposer: m, b, and the odds against each.
PRIOR, AVERAGE, PRIOR_AGAINST, AVERAGE_AGAINST = range(4)


@compiled
def fade_request(counts: Floats, row: int, share: float) -> None:
    """Leaves a share of a request's counts.

    Args:
        counts: [rows, 2, K], tried and accepted; changed in place.
        row: the request's.
        share: from 0 to 1.
    """
    for i in range(counts.shape[2]):
        counts[row, TRIED, i] *= share
        counts[row, ACCEPTED, i] *= share


@compiled
def count_draft(
    counts: Floats, sums: Floats, weight: Floats, growth: float, fade: float, row: int, drafted: int, accepted: int
) -> None:
    """Adds one verified draft to its request's counts and to the sums.

    Later drafts get greater weights in the sums instead of earlier ones fading.

    Args:
        counts: [rows, 2, K], tried and accepted; changed in place.
        sums: [4, K], over drafts with their weights; changed in place.
        weight: [1], of the draft before, at least 1; becomes this one's.
        growth: from one draft's weight to the next one's.
        fade: what is left of the request's earlier counts.
        row: the request's.
        drafted: tokens of the draft, at least 1.
        accepted: how many of them were, the first ones.
    """
    weight[0] *= growth
    own = weight[0]
    good, known = counts[row, ACCEPTED, 0], counts[row, TRIED, 0]
    fade_request(counts, row, fade)
    for i in range(sums.shape[1]):
        if i < drafted and i <= accepted:
            counts[row, TRIED, i] += 1
            sums[TRIED, i] += own
            sums[GOOD, i] += own * good
            sums[KNOWN, i] += own * known
        if i < accepted:
            counts[row, ACCEPTED, i] += 1
            sums[ACCEPTED, i] += own
    if own > _MOST_WEIGHT:
        sums /= own
        weight[0] = 1.0


@compiled
def count_steps(
    counts: Floats,
    sums: Floats,
    weight: Floats,
    growth: float,
    draft_fade: float,
    half_life: float,
    rows: Ints,
    drafted: Ints,
    accepted: Ints,
    num_tokens: Ints,
) -> None:
    """Adds one step of each of n requests, in their order: its draft, if there was one, then the growth of its text.

    Args:
        counts: as of `count_draft`.
        sums: as of `count_draft`.
        weight: as of `count_draft`.
        growth: as of `count_draft`.
        draft_fade: what a draft leaves of its request's earlier counts.
        half_life: tokens in which a request's counts halve.
        rows: [n].
        drafted: [n], 0 where there was no draft.
        accepted: [n].
        num_tokens: [n], output tokens.

    Raises:
        ValueError: fewer than 0 or more than `drafted` were accepted; nothing was changed.
    """
    for place in range(len(rows)):
        if not 0 <= accepted[place] <= drafted[place]:
            raise ValueError("accepted tokens of a draft are fewer than 0 or more than its tokens")
    # Powers take long, and texts grow by few tokens.
    fades = np.array([0.5 ** (grown / half_life) for grown in range(sums.shape[1] + 2)])
    for place in range(len(rows)):
        row = rows[place]
        if drafted[place]:
            count_draft(counts, sums, weight, growth, draft_fade, row, drafted[place], accepted[place])
        if num_tokens[place]:
            few = num_tokens[place] < len(fades)
            fade_request(counts, row, fades[num_tokens[place]] if few else 0.5 ** (num_tokens[place] / half_life))


@compiled
def of_proposer(sums: Floats, weight: Floats, initial: float) -> Floats:
    """[4, K]: m, b, and the odds against each.

    Args:
        sums: as of `count_draft`.
        weight: [1], of the last draft.
        initial: the prior before anything was verified.
    """
    num_positions = sums.shape[1]
    known = np.empty((4, num_positions))
    lean = PRIOR_WEIGHT * weight[0]
    rate = level = first = initial
    for i in range(num_positions):
        tried = sums[TRIED, i]
        rate = min(max((sums[ACCEPTED, i] + lean * rate) / (tried + lean), LEAST), MOST)
        if sums[KNOWN, i]:
            level = min(max((tried * sums[GOOD, i] / sums[KNOWN, i] + lean * level) / (tried + lean), LEAST), MOST)
        if i == 0:
            first = level
        against = 1 / rate - 1
        average_against = against * (1 / first - 1) * level / (1 - level)
        known[PRIOR, i], known[AVERAGE, i] = rate, 1 / (1 + average_against)
        known[PRIOR_AGAINST, i], known[AVERAGE_AGAINST, i] = against, average_against
    return known


@compiled
def chances(counts: Floats, sums: Floats, weight: Floats, initial: float, strength: float, rows: Ints) -> Floats:
    """[n, K]: a[r, 1] * ... * a[r, i] of n requests, the probability that draft tokens 1 to i are all accepted.

    Args:
        counts: as of `count_draft`.
        sums: as of `count_draft`.
        weight: [1], of the last draft.
        initial: the prior before anything was verified.
        strength: s, observations that the prior is worth.
        rows: [n].
    """
    num_positions, firmness = sums.shape[1], FIRMNESS * strength
    softness = 1 / firmness
    shared = of_proposer(sums, weight, initial)
    rates = np.empty((len(rows), num_positions))
    for place in range(len(rows)):
        row = rows[place]
        total = strength
        seen = foreseen = strength * shared[AVERAGE, 0]
        for i in range(num_positions):
            share = firmness / (counts[row, TRIED, i] + firmness)
            total += counts[row, TRIED, i] * share
            seen += counts[row, ACCEPTED, i] * share
            foreseen += shared[AVERAGE, i] * counts[row, TRIED, i] * share
            # Needed once more, and a division takes longest of all.
            rates[place, i] = share
        against = foreseen * (total - seen) / (seen * (total - foreseen))
        unknown = against * strength / total
        product = 1.0
        for i in range(num_positions):
            odds = (against - unknown) * shared[AVERAGE_AGAINST, i] + unknown * shared[PRIOR_AGAINST, i]
            rate = (counts[row, ACCEPTED, i] * softness + 1 / (1 + odds)) * rates[place, i]
            rate = LEAST if rate < LEAST else MOST if rate > MOST else rate
            product *= rate
            rates[place, i] = product
    return rates


@compiled
def score_strengths(
    counts: Floats,
    sums: Floats,
    weight: Floats,
    initial: float,
    begin: int,
    scores: Floats,
    strengths: Floats,
    rows: Ints,
    drafted: Ints,
    accepted: Ints,
) -> tuple[int, float]:
    """Compares what became of a few of a step's drafts with what each strength says of them.

    Args:
        counts: as of `chances`, before the step is counted.
        sums: those.
        weight: those.
        initial: those.
        begin: whose draft to begin with; where the last step's ended.
        scores: [S], log-likelihoods, which fade; changed in place.
        strengths: [S].
        rows: [n].
        drafted: [n], 0 where there was no draft.
        accepted: [n].

    Returns:
        Whose draft is next, and the strength to go by.
    """
    some = np.empty(min(len(rows), _MOST_SCORED), np.int64)
    count = 0
    for place in range(len(rows)):
        # Each request's turn comes: it is likely to be at the same place in the next step.
        note = (begin + place) % len(rows)
        if drafted[note] and 0 <= accepted[note] <= drafted[note]:
            some[count] = note
            count += 1
            if count == len(some):
                begin = note + 1
                break
    some = some[:count]
    for which in range(len(strengths)):
        expected = chances(counts, sums, weight, initial, strengths[which], rows[some])
        for place in range(count):
            length = min(drafted[some[place]], sums.shape[1])
            kept = min(accepted[some[place]], length)
            likelihood = expected[place, kept - 1] if kept else 1.0
            if kept < length:
                likelihood -= expected[place, kept]
            scores[which] = scores[which] * _SCORE_FADE + math.log(likelihood)
    weights = np.exp(scores - scores.max())
    return begin, math.exp((weights * np.log(strengths)).sum() / weights.sum())


@compiled
def promise_chains(
    counts_there: Floats,
    sums_there: Floats,
    weight_there: Floats,
    initial_there: float,
    strength_there: float,
    counts: Floats,
    sums: Floats,
    weight: Floats,
    initial: float,
    strength: float,
    rows: Ints,
    there: Floats,
    gains: Floats,
    delivered: Floats,
) -> None:
    """Writes what the drafts of n requests are expected to bring, as `Expectation.promise` says.

    Args:
        counts_there: as of `chances`, like the next four, of draft tokens that were asked for: whether they were there.
        sums_there: those.
        weight_there: those.
        initial_there: those.
        strength_there: those.
        counts: as of `chances`, like the next four, of draft tokens: whether they were accepted.
        sums: those.
        weight: those.
        initial: those.
        strength: those.
        rows: [n].
        there: [n]; written.
        gains: [n, >= K]; written.
        delivered: [n, >= K]; written.
    """
    come = chances(counts_there, sums_there, weight_there, initial_there, strength_there, rows)
    right = chances(counts, sums, weight, initial, strength, rows)
    num_positions = sums.shape[1]
    gains[:, num_positions:] = delivered[:, num_positions:] = 0
    for place in range(len(rows)):
        there[place] = come[place, 0]
        for i in range(num_positions):
            gains[place, i] = right[place, i] * come[place, i]
            delivered[place, i] = come[place, i]
