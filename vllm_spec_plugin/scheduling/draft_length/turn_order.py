"""Who is asked first for each request, and all draft tokens in the order of their worth; compiled code only."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Bools, Floats, Ints

# Columns of `draft`: what drafting costs in a step at all, per place of the longest draft, and per token.
ANY, PLACE, TOKEN = range(3)
# Turns that come more seldom are left out: they are hardly worth the time of planning them.
_LEAST_REACH = 0.02
NOBODY = -1
# Worths that differ by less than one of so many parts of a token count as the same: to sort by shelves takes a third
# of the time.
_NUM_SHELVES = 4096


@compiled
def _worth(
    gains: Floats, delivered: Floats, there: float, limit: int, token: float, place: float, asking: float
) -> float:
    """What a turn is worth to a request, per guess that comes of it, at the best length; in output tokens.

    Whoever has the most is to be asked first: with P(guess) p, value given a guess v and cost of asking c, asking 1
    before 2 brings p1 v1 - c1 + (1 - p1)(p2 v2 - c2), which is the better order if v1 - c1 / p1 > v2 - c2 / p2.

    Args:
        gains: [K], accepted tokens.
        delivered: [K], draft tokens.
        there: P(guess).
        limit: longest draft.
        token: cost of a draft token, in output tokens.
        place: of a place.
        asking: of the turn.
    """
    best, value = -np.inf, -asking
    for k in range(limit):
        value += gains[k] - token * delivered[k] - place
        best = max(best, value)
    return best / there


@compiled
def turns_by_worth(
    gains: Floats,
    delivered: Floats,
    there: Floats,
    entry: Floats,
    limits: Ints,
    draft: Floats,
    takes_part: Bools,
    rate: float,
    row_seconds: float,
) -> tuple[Ints, Floats]:
    """Each request's proposers, the most valuable first.

    Args:
        gains: [L, n, K], expected accepted tokens of each place of each of L proposers.
        delivered: [L, n, K], expected draft tokens.
        there: [L, n], the probability of a guess.
        entry: [L, n], seconds that a request's first draft token takes besides.
        limits: [n, L], most places.
        draft: [L, 3], seconds that drafting takes.
        takes_part: [L], which proposers may be asked at all.
        rate: output tokens that a second is worth.
        row_seconds: what another draft token costs the target.

    Returns:
        [n, L] proposers, `NOBODY` after the last one, and [n, L] the probability that each one's turn comes.
    """
    num_lanes, num_requests, _ = gains.shape
    proposers = np.full((num_requests, num_lanes), NOBODY, np.int64)
    reach = np.zeros((num_requests, num_lanes))
    worths = np.zeros(num_lanes)
    for request in range(num_requests):
        count = 0
        for lane in range(num_lanes):
            if not takes_part[lane] or limits[request, lane] <= 0:
                continue
            worth = _worth(
                gains[lane, request],
                delivered[lane, request],
                there[lane, request],
                limits[request, lane],
                rate * (row_seconds + draft[lane, TOKEN]),
                rate * draft[lane, PLACE] / num_requests,
                rate * (draft[lane, ANY] / num_requests + entry[lane, request]),
            )
            turn = count
            while turn > 0 and worths[turn - 1] < worth:
                worths[turn], proposers[request, turn] = worths[turn - 1], proposers[request, turn - 1]
                turn -= 1
            worths[turn], proposers[request, turn] = worth, lane
            count += 1
        comes = 1.0
        for turn in range(count):
            if turn > 0 and comes < _LEAST_REACH:
                proposers[request, turn:] = NOBODY
                break
            reach[request, turn] = comes
            comes *= 1 - there[proposers[request, turn], request]
    return proposers, reach


@compiled
def _keys_of(keys: Floats, gains: Floats, delivered: Floats, entry: float, limit: int, token: float) -> None:
    """Writes what each place is worth per draft token that the target verifies, falling, into `keys`, [K].

    What it takes to begin is spread over as many places as it takes to make the best of it.
    """
    best, num_first = -np.inf, 0
    worth, num_delivered = -entry, 0.0
    for k in range(limit):
        keys[k] = gains[k] / delivered[k] - token
        worth += keys[k] * delivered[k]
        num_delivered += delivered[k]
        if worth / num_delivered > best:
            best, num_first = worth / num_delivered, k + 1
    keys[:num_first] = best


@compiled
def by_worth(
    proposers: Ints, gains: Floats, delivered: Floats, entry: Floats, limits: Ints, draft: Floats, rate: float
) -> tuple[Ints, Ints]:
    """All places of all turns, by what they are worth per draft token that the target verifies.

    A turn's places stand in their order, and after the first place of the turn before it.

    Args:
        proposers: [n, L], from `turns_by_worth`.
        gains: as of `turns_by_worth`.
        delivered: as of `turns_by_worth`.
        entry: as of `turns_by_worth`.
        limits: as of `turns_by_worth`.
        draft: as of `turns_by_worth`.
        rate: as of `turns_by_worth`.

    Returns:
        [m] whose turn, r * L + t for request r's (t+1)-th one, and [m] which place of it, from 0.
    """
    num_lanes, num_requests, most = gains.shape
    keys = np.empty(most)
    shelf_of = np.empty((num_lanes, most, num_requests), np.int64)
    ends = np.zeros((num_lanes, num_requests), np.int64)
    starts = np.zeros(_NUM_SHELVES + 1, np.int64)
    for request in range(num_requests):
        before = 1.0
        for turn in range(num_lanes):
            lane = proposers[request, turn]
            if lane == NOBODY:
                break
            limit, cost, token = limits[request, lane], rate * entry[lane, request], rate * draft[lane, TOKEN]
            _keys_of(keys, gains[lane, request], delivered[lane, request], cost, limit, token)
            ends[turn, request] = limit
            before = min(before, keys[0])
            for place in range(limit):
                shelf = int((1 - min(keys[place], before)) * _NUM_SHELVES)
                shelf = min(max(shelf, 0), _NUM_SHELVES - 1)
                shelf_of[turn, place, request] = shelf
                starts[shelf + 1] += 1
    for shelf in range(_NUM_SHELVES):
        starts[shelf + 1] += starts[shelf]
    num_places = starts[_NUM_SHELVES]
    rows, places = np.empty(num_places, np.int64), np.empty(num_places, np.int64)
    # In this order, so that on a shelf turns and places keep theirs.
    for turn in range(num_lanes):
        for place in range(most):
            for request in range(num_requests):
                if place < ends[turn, request]:
                    shelf = shelf_of[turn, place, request]
                    at = starts[shelf]
                    rows[at], places[at] = request * num_lanes + turn, place
                    starts[shelf] += 1
    return rows, places
