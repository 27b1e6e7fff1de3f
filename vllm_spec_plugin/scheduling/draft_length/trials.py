"""What it costs to ask a proposer first that the plan does not ask first, and of whom to try it; compiled code only."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Bools, Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.turn_order import ANY, PLACE, TOKEN

# What a trial is expected to bring is an old guess, or it would be in the plan: only the one share of it is counted on,
# and the other share of what the trial costs is paid in any case.
_SURE_SHARE, _LEAST_SHARE = 0.5, 0.1
_SHORTEST = 1e-9


@compiled
def asked_first(asked: Floats, rows: Ints, proposers: Ints, lengths: Ints, now: int) -> None:
    """Notes who has the first turns of a plan.

    Args:
        asked: [., L], the step in which each proposer was last asked; changed in place.
        rows: [n], the requests' places in it.
        proposers: [n, L], of the planned turns.
        lengths: [n, L], their places; 0 is no turn.
        now: the step.
    """
    for request in range(len(rows)):
        if lengths[request, 0]:
            asked[rows[request], proposers[request, 0]] = now


@compiled
def were_asked(asked: Floats, rows: Ints, fates: Ints, now: int) -> None:
    """Notes who was asked, whoever's turn had been planned first.

    Args:
        asked: as of `asked_first`; changed in place.
        rows: [n], the requests' places in it.
        fates: [L, 3, n], as of `Noted`.
        now: the step.
    """
    for lane in range(len(fates)):
        for note in range(len(rows)):
            if fates[lane, 0, note] > 0:
                asked[rows[note], lane] = now


@compiled
def longest_due(
    proposers: Ints,
    reach: Floats,
    lengths: Ints,
    gains: Floats,
    delivered: Floats,
    there: Floats,
    limits: Ints,
    unit: Ints,
    draft: Floats,
    catch_up: Floats,
    asked: Floats,
    rows: Ints,
    now: int,
    rate: float,
    row_seconds: float,
    most_tokens: int,
    dearest: float,
    unknown: Bools,
) -> tuple[Ints, Floats]:
    """Per proposer, the request that is most due to have one place of it as its first turn, and the price.

    Due is who has waited longest for the price: so each request has the same share of what is spent.

    Args:
        proposers: [n, L], of the planned turns.
        reach: [n, L], the probability that each one comes.
        lengths: [n, L], their places; 0 is no turn.
        gains: [L, n, K], expected accepted tokens of each place.
        delivered: [L, n, K], expected draft tokens.
        there: [L, n], the probability of a guess.
        limits: [n, L], most places.
        unit: [n, L], tokens that are asked for per place.
        draft: [L, 3], seconds that drafting takes.
        catch_up: [L, n], seconds that the first place takes besides.
        asked: [., L], the step in which each proposer was last asked; 0 becomes `now`.
        rows: [n], the requests' places in it.
        now: the step.
        rate: output tokens that a second is worth.
        row_seconds: what another draft token costs the target.
        most_tokens: most draft tokens of the batch.
        dearest: seconds; what costs more is not worth to wait for.
        unknown: [L], whether what a proposer takes is as good as unknown, so that it may cost more but for catching up.

    Returns:
        [L] requests, -1 where there is none, and [L] seconds.
    """
    num_lanes, num_requests = there.shape
    chosen, prices, due = np.full(num_lanes, -1, np.int64), np.zeros(num_lanes), np.zeros(num_lanes)
    longest, nobody = np.zeros(num_lanes, np.int64), np.ones(num_lanes)
    # Accepted tokens that the plan has of each turn, and of each request; tokens that it asks for.
    of_turn = np.zeros((num_requests, num_lanes))
    expected, widest = np.zeros(num_requests), np.zeros(num_requests, np.int64)
    for request in range(num_requests):
        for turn in range(num_lanes):
            length = lengths[request, turn]
            if not length:
                break
            lane = proposers[request, turn]
            longest[lane] = max(longest[lane], length)
            nobody[lane] *= 1 - reach[request, turn]
            for place in range(length):
                of_turn[request, turn] += reach[request, turn] * gains[lane, request, place]
            expected[request] += of_turn[request, turn]
            widest[request] = max(widest[request], length * unit[request, lane])
    num_asked = widest.sum()
    for lane in range(num_lanes):
        comes = 1 - nobody[lane]
        shared = draft[lane, ANY] + draft[lane, PLACE] * max(longest[lane], 1)
        shared -= comes * (draft[lane, ANY] + draft[lane, PLACE] * longest[lane])
        for request in range(num_requests):
            if limits[request, lane] <= 0 or (lengths[request, 0] and proposers[request, 0] == lane):
                continue
            after, others = 0.0, unit[request, lane]
            for turn in range(num_lanes):
                if lengths[request, turn] and proposers[request, turn] != lane:
                    after += of_turn[request, turn]
                    others = max(others, lengths[request, turn] * unit[request, proposers[request, turn]])
            if num_asked - widest[request] + others > most_tokens:
                continue
            tokens = delivered[lane, request, 0]
            lost = expected[request] - (1 - there[lane, request]) * after - _SURE_SHARE * gains[lane, request, 0]
            price = shared + tokens * draft[lane, TOKEN] + catch_up[lane, request]
            if not lengths[request, 0]:
                price += tokens * row_seconds
            price = max(price + lost / rate, _LEAST_SHARE * price, _SHORTEST)
            if price > dearest and not (unknown[lane] and catch_up[lane, request] <= dearest):
                continue
            # Of new requests what is known of all others is good enough for a while.
            if asked[rows[request], lane] == 0:
                asked[rows[request], lane] = now
            waited = now - asked[rows[request], lane]
            if chosen[lane] < 0 or waited / price > due[lane]:
                chosen[lane], prices[lane], due[lane] = request, price, waited / price
    return chosen, prices
