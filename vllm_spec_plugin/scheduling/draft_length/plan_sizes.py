"""The best plan of every size; compiled code only."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Bools, Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.turn_codes import encode
from vllm_spec_plugin.scheduling.draft_length.turn_order import ANY, PLACE, TOKEN, by_worth, turns_by_worth

# Proposers whose longest draft costs less than this share of a step are not worth a bound.
_NEGLIGIBLE = 0.002
# What is gathered of each candidate.
_LANE, _REQUEST, _WIDTH = range(3)
_GAIN, _ROWS, _COST, _COMES = range(4)
_UNNOTED = -1


@compiled
def _admit(
    lengths: Ints, widest: Ints, asked: int, row: int, place: int, is_first: bool, request: int, width: int, most: int
) -> int:
    """Takes a candidate into a plan, if what must come before it is in and there is room.

    Args:
        lengths: [n * L], places of each turn; changed in place.
        widest: [n], tokens of each request's longest turn; changed in place.
        asked: their sum.
        row: the candidate's turn.
        place: its place in it.
        is_first: whether it is the request's first turn.
        request: whose.
        width: tokens of the turn with it.
        most: most tokens of all.

    Returns:
        The sum with it, or -1 if it is left out.
    """
    if place != lengths[row] or (not is_first and lengths[row - 1] == 0):
        return -1
    more = width - widest[request]
    if more > 0:
        if asked + more > most:
            return -1
        asked += more
        widest[request] = width
    lengths[row] = place + 1
    return asked


@compiled
def turns_at(
    rows: Ints, places: Ints, proposers: Ints, unit: Ints, bounds: Ints, most_tokens: int, size: int
) -> tuple[Ints, Ints]:
    """[n, L], places of each turn in the plan of that size, and [n], each request's turns as a number.

    Args:
        rows: as of `best_by_size`, like all that are not named here.
        places: those.
        proposers: those.
        unit: those.
        bounds: [L], of the plan.
        most_tokens: those.
        size: places of the plan.
    """
    num_requests, num_lanes = proposers.shape
    lengths, widest, asked = np.zeros(num_requests * num_lanes, np.int64), np.zeros(num_requests, np.int64), 0
    for candidate in range(len(rows)):
        if size == 0:
            break
        row, place = rows[candidate], places[candidate]
        request = row // num_lanes
        lane = proposers[request, row - request * num_lanes]
        if place < bounds[lane]:
            width = (place + 1) * unit[request, lane]
            is_first = row == request * num_lanes
            after = _admit(lengths, widest, asked, row, place, is_first, request, width, most_tokens)
            if after >= 0:
                asked = after
                size -= 1
    of_turns = lengths.reshape(num_requests, num_lanes)
    return of_turns, encode(of_turns, proposers, unit)


@compiled
def best_by_size(
    rows: Ints,
    places: Ints,
    proposers: Ints,
    reach: Floats,
    gains: Floats,
    delivered: Floats,
    entry: Floats,
    unit: Ints,
    draft: Floats,
    step: Floats,
    most_tokens: int,
    others: int,
) -> tuple[Floats, Ints, Ints, int]:
    """Goes through the candidates once for each bound on the draft lengths, and notes the plans with the best and none.

    Draft tokens that are made one after the other cost by the longest draft: a bound keeps a single request of
    which much is expected from making it longer for all. With several proposers of that kind one is bounded after the
    other.

    Args:
        rows: [m], candidates from `turn_order.by_worth`: whose turn.
        places: [m], which place of it.
        proposers: [n, L], of each turn.
        reach: [n, L], the probability that it comes.
        gains: [L, n, K], expected accepted tokens of each place.
        delivered: [L, n, K], expected draft tokens.
        entry: [L, n], seconds that the first place of a turn takes besides.
        unit: [n, L], tokens that are asked for per place.
        draft: [L, 3], seconds.
        step: [draft tokens + 2], seconds of the target for 0 draft tokens and more.
        most_tokens: most draft tokens; of a request that with the longest turn counts.
        others: output tokens of requests beside the n.

    Returns:
        For each number of places up to what there is room for, of the plan with the most tokens per second: [3, size
        + 1] expected output tokens, draft tokens that are verified, seconds, and [size + 1] which of the bounds it has;
        then [2, L] bounds, and the number of places of the best plan of all.
    """
    num_lanes, num_requests, most = gains.shape
    whole = np.empty((len(rows), 3), np.int64)
    parts = np.empty((len(rows), 4))
    widest = np.zeros(num_requests, np.int64)
    request_of = np.repeat(np.arange(num_requests), num_lanes)
    for candidate in range(len(rows)):
        row, place = rows[candidate], places[candidate]
        request = request_of[row]
        turn = row - request * num_lanes
        lane, comes = proposers[request, turn], reach[request, turn]
        whole[candidate, _LANE], whole[candidate, _REQUEST] = lane, request
        whole[candidate, _WIDTH] = (place + 1) * unit[request, lane]
        widest[request] = max(widest[request], whole[candidate, _WIDTH])
        parts[candidate, _GAIN] = comes * gains[lane, request, place]
        parts[candidate, _ROWS] = comes * delivered[lane, request, place]
        parts[candidate, _COST] = draft[lane, TOKEN] * parts[candidate, _ROWS]
        parts[candidate, _COMES] = comes
        if place == 0:
            parts[candidate, _COST] += comes * entry[lane, request]
    plans, which = np.zeros((3, len(rows) + 1)), np.zeros(len(rows) + 1, np.int64)
    plans[0, 0], plans[2, 0] = num_requests + others, step[0]
    bounds = np.full((2, num_lanes), most, np.int64)
    longest, top = np.zeros(num_lanes, np.int64), 0.0
    # With room for all, whatever is within the bounds comes in, in its order.
    has_room = widest.sum() <= most_tokens
    within = np.arange(len(rows))
    args = (rows, places, whole, parts, draft, step, num_requests, most_tokens, has_room)
    top = _walk(within, *args, longest, plans, which, 0)
    for lane in range(num_lanes):
        if draft[lane, PLACE] * (longest[lane] - 1) <= _NEGLIGIBLE * step[0]:
            continue
        kept, bound = within.copy(), longest[lane]
        while bound > 1:
            # All up to 8, of longer ones every eighth or so.
            bound = min(bound - 1, bound * 7 // 8)
            kept = _within(kept, whole, places, lane, bound)
            rate = _walk(kept, *args, longest, plans, which, _UNNOTED)
            if rate > top:
                top, within, bounds[1, lane] = rate, kept.copy(), bound
    if (bounds[1] < bounds[0]).any():
        _walk(within, *args, longest, plans, which, 1)
    size = len(rows)
    while size > 0 and plans[2, size] == 0:
        size -= 1
    return plans[:, : size + 1].copy(), which[: size + 1], bounds, _best(plans)


@compiled
def _best(plans: Floats) -> int:
    """The size with the most tokens per second."""
    best = 0
    for size in range(plans.shape[1]):
        if plans[2, size] > 0 and plans[0, size] * plans[2, best] > plans[0, best] * plans[2, size]:
            best = size
    return best


@compiled
def _within(candidates: Ints, whole: Ints, places: Ints, lane: int, bound: int) -> Ints:
    """Those of the candidates that are within a bound on a proposer's draft length, in the same array."""
    count = 0
    for candidate in candidates:
        candidates[count] = candidate
        # No branch: which way it went could not be foreseen.
        count += (whole[candidate, _LANE] != lane) | (places[candidate] < bound)
    return candidates[:count]


@compiled
def _walk(
    candidates: Ints,
    rows: Ints,
    places: Ints,
    whole: Ints,
    parts: Floats,
    draft: Floats,
    step: Floats,
    num_requests: int,
    most_tokens: int,
    has_room: bool,
    longest: Ints,
    plans: Floats,
    which: Ints,
    at: int,
) -> float:
    """Takes the candidates one by one, and notes each plan on the way that is better than what was known of its size.

    A proposer's costs that all requests share come as often as any turn of it does.

    Args:
        candidates: those within the bounds.
        rows: as of `best_by_size`, like all that are not named here.
        places: those.
        whole: [m, 3], what is gathered of each candidate.
        parts: [m, 4], and that.
        draft: those.
        step: those.
        num_requests: n.
        most_tokens: those.
        has_room: whether that is more than all candidates together.
        longest: [L], becomes each proposer's longest draft, if plans are noted.
        plans: [3, m + 1] tokens, rows and seconds of the best plans; changed in place.
        which: [m + 1], their bounds; changed in place.
        at: what to note for these bounds; `_UNNOTED` if nothing.

    Returns:
        The most tokens per second of a plan on the way.
    """
    num_lanes = len(draft)
    lengths, widest, asked = np.zeros(num_requests * num_lanes, np.int64), np.zeros(num_requests, np.int64), 0
    reached, shared, nobody = np.zeros(num_lanes, np.int64), np.zeros(num_lanes), np.ones(num_lanes)
    size, tokens, verified, drafting = 0, plans[0, 0], 0.0, 0.0
    most, least = plans[0, 0], plans[2, 0]
    for candidate in candidates:
        lane, place = whole[candidate, _LANE], places[candidate]
        if not has_room:
            row, request = rows[candidate], whole[candidate, _REQUEST]
            is_first = row == request * num_lanes
            after = _admit(lengths, widest, asked, row, place, is_first, request, whole[candidate, _WIDTH], most_tokens)
            if after < 0:
                continue
            asked = after
        size += 1
        tokens += parts[candidate, _GAIN]
        verified += parts[candidate, _ROWS]
        drafting += parts[candidate, _COST]
        if place == 0 or place >= reached[lane]:
            if place == 0:
                nobody[lane] *= 1 - parts[candidate, _COMES]
            reached[lane] = max(reached[lane], place + 1)
            drafting -= shared[lane]
            shared[lane] = (1 - nobody[lane]) * (draft[lane, ANY] + draft[lane, PLACE] * reached[lane])
            drafting += shared[lane]
        below = int(verified)
        seconds = step[below] + (verified - below) * (step[below + 1] - step[below]) + drafting
        if tokens * least > most * seconds:
            most, least = tokens, seconds
        if at != _UNNOTED and (plans[2, size] == 0 or tokens * plans[2, size] > plans[0, size] * seconds):
            plans[0, size], plans[1, size], plans[2, size], which[size] = tokens, verified, seconds, at
    if at != _UNNOTED:
        longest[:] = reached
    return float(most / least)


@compiled
def best_plans(
    there: Floats,
    gains: Floats,
    delivered: Floats,
    entry: Floats,
    limits: Ints,
    unit: Ints,
    draft: Floats,
    step: Floats,
    most_tokens: int,
    others: int,
    takes_part: Bools,
    rate: float,
    row_seconds: float,
) -> tuple[Ints, Floats, Ints, Ints, Floats, Ints, Ints, int]:
    """What `turns_by_worth`, `by_worth` and `best_by_size` return, one after the other, in a single call from Python.

    Args:
        there: as of `turns_by_worth`.
        gains: as of all three.
        delivered: as of all three.
        entry: as of all three.
        limits: as of `turns_by_worth`.
        unit: as of `best_by_size`.
        draft: as of all three.
        step: as of `best_by_size`.
        most_tokens: as of `best_by_size`.
        others: as of `best_by_size`.
        takes_part: as of `turns_by_worth`.
        rate: as of `turns_by_worth`.
        row_seconds: as of `turns_by_worth`.
    """
    proposers, reach = turns_by_worth(gains, delivered, there, entry, limits, draft, takes_part, rate, row_seconds)
    rows, places = by_worth(proposers, gains, delivered, entry, limits, draft, rate)
    sized, which, bounds, top = best_by_size(
        rows, places, proposers, reach, gains, delivered, entry, unit, draft, step, most_tokens, others
    )
    return proposers, reach, rows, places, sized, which, bounds, top
