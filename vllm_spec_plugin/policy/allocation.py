"""Allocates draft tokens to the requests of a batch for the most expected output tokens per second.

The best plan maximises

    (n + others + expected accepted tokens) / (seconds of the target's step + seconds of drafting)

With one request, one proposer and a verification that costs nothing this is theorem 3.8 of Leviathan et al. (2023).
Expected gains per draft token fall along each draft. So the best plan of any size is a prefix of one list, all draft
tokens by falling gain, whatever the shape of a step's cost. Three things make this a heuristic: costs of a request's
first draft token, costs that a proposer's requests share, and proposers that draft only if earlier ones have no draft.
Passes of a draft model cost by the longest draft, so the list is scanned once for each bound on it.
"""

from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Bools, Floats, Ints, compiled

# Columns of `CandidateDrafts.drafting`: seconds per step, per position of the longest draft, and per draft token.
ASKING, POSITION, TOKEN = range(3)
NO_PROPOSER = -1
# Minimum probability that a planned proposer is tried.
_MIN_REACH = 0.02
# Resolution of the sort by gain: buckets per token.
_NUM_BUCKETS = 2048
# Share of a step below which costs shared by a proposer's requests need no bound on the longest draft.
_NEGLIGIBLE = 0.002


class CandidateDrafts(NamedTuple):
    """Expected drafts of L proposers for n requests, up to K tokens each, and their cost.

    Attributes:
        gains: [L, n, K], expected accepted tokens at each position, falling per expected draft token.
        draft_tokens: [L, n, K], expected draft tokens at each position; at the first one the probability of a draft.
        entry: [n, L], further seconds of a request's first draft token: catching up with its text.
        limits: [n, L], maximum draft tokens.
        drafting: [L, 3], seconds of `ASKING`, `POSITION` and `TOKEN`.
        step: [draft tokens + 2], seconds of the target's step with 0, 1, 2, ... draft tokens.
        max_draft_tokens: maximum draft tokens of all requests, each counted by its longest draft.
        others: output tokens of requests without drafts.
        unconditional: [L], whether a planned draft costs what it costs even where an earlier proposer has one.
    """

    gains: Floats
    draft_tokens: Floats
    entry: Floats
    limits: Ints
    drafting: Floats
    step: Floats
    max_draft_tokens: int
    others: int
    unconditional: Bools


class Value(NamedTuple):
    """Expected tokens and seconds of a plan.

    Attributes:
        positions: number of planned draft tokens, all proposers together.
        tokens: expected output tokens of the step that verifies the drafts.
        rows: expected draft tokens that it verifies.
        seconds: expected seconds of that step and of drafting.
    """

    positions: int
    tokens: float
    rows: float
    seconds: float


class _RankedPositions(NamedTuple):
    """Positions of all planned drafts by falling gain per draft token.

    Attributes:
        place: [m], r * L + t for place t in the plan of request r.
        request: [m], r: index of the request.
        proposer: [m], proposer of the draft.
        position: [m], position in the draft, from 0.
    """

    place: Ints
    request: Ints
    proposer: Ints
    position: Ints


@compiled
def allocate(
    candidates: CandidateDrafts, rate: float, row_seconds: float, uneven_seconds: float
) -> tuple[Ints, Ints, Value]:
    """Returns the best plan: [n, L] draft tokens per place, 0 for none; [n, L] proposer per place; and its value.

    Args:
        candidates: expected drafts of at least one request.
        rate: present output tokens per second, the price of a second.
        row_seconds: approximate seconds that a draft token adds to the target's step.
        uneven_seconds: seconds by which a step takes longer if its requests have unequal lengths.
    """
    num_proposers, num_requests, max_length = candidates.gains.shape
    proposers = _rank_proposers(candidates, rate, row_seconds)
    in_order = _rank_positions(candidates, proposers, rate)
    lengths = np.zeros(num_requests * num_proposers, np.int64)
    bounds = np.full(num_proposers, max_length)
    best = _scan(candidates, in_order, bounds, -1, lengths)
    for proposer in range(num_proposers):
        costs = candidates.drafting[proposer]
        if costs[ASKING] + costs[POSITION] * (max_length - 1) <= _NEGLIGIBLE * candidates.step[0]:
            continue
        best_bound, bound = max_length, max_length
        while bound > 0:
            # Every bound up to 8; larger ones in steps of an eighth.
            bound = min(bound - 1, bound * 7 // 8)
            bounds[proposer] = bound
            value = _scan(candidates, in_order, bounds, -1, lengths)
            if value.tokens * best.seconds > best.tokens * value.seconds:
                best, best_bound = value, bound
        bounds[proposer] = best_bound
    _scan(candidates, in_order, bounds, best.positions, lengths)
    table = lengths.reshape(num_requests, num_proposers)
    if uneven_seconds and num_proposers == 1 and not candidates.others and table.min() < table.max():
        best = _equal_or_less(candidates, table, best, uneven_seconds)
    return table, proposers, best


@compiled
def _rank_proposers(candidates: CandidateDrafts, rate: float, row_seconds: float) -> Ints:
    """Returns [n, L], each request's proposers by falling value, then `NO_PROPOSER`.

    With draft probability p, value v of a draft and cost c of drafting, in output tokens, the order 1, 2 is worth
    p1 v1 - c1 + (1 - p1)(p2 v2 - c2), so the proposer with the higher v - c / p is first.
    """
    num_proposers, num_requests, _ = candidates.gains.shape
    proposers = np.full((num_requests, num_proposers), NO_PROPOSER)
    values = np.empty(num_proposers)
    for request in range(num_requests):
        count = 0
        for proposer in range(num_proposers):
            costs, limit = candidates.drafting[proposer], candidates.limits[request, proposer]
            if limit <= 0:
                continue
            per_token = rate * (row_seconds + costs[TOKEN])
            per_position = rate * costs[POSITION] / num_requests
            value, best = -rate * (costs[ASKING] / num_requests + candidates.entry[request, proposer]), -np.inf
            for k in range(limit):
                value += candidates.gains[proposer, request, k] - per_position
                value -= per_token * candidates.draft_tokens[proposer, request, k]
                best = max(best, value)
            best /= candidates.draft_tokens[proposer, request, 0]
            place = count
            while place > 0 and values[place - 1] < best:
                values[place], proposers[request, place] = values[place - 1], proposers[request, place - 1]
                place -= 1
            values[place], proposers[request, place] = best, proposer
            count += 1
        reach = 1.0
        for place in range(count):
            if reach < _MIN_REACH:
                proposers[request, place] = NO_PROPOSER
            else:
                reach *= 1 - candidates.draft_tokens[proposers[request, place], request, 0]
    return proposers


@compiled
def _rank_positions(candidates: CandidateDrafts, proposers: Ints, rate: float) -> _RankedPositions:
    """Sorts all positions of all planned drafts by gain per draft token, by counting.

    A proposer's entry cost is spread over its draft's first positions. A draft's positions keep their order, and
    follow the first one of the proposer before it.
    """
    num_proposers, num_requests, max_length = candidates.gains.shape
    bucket_of = np.full((num_requests, num_proposers, max_length), _NUM_BUCKETS)
    starts = np.zeros(_NUM_BUCKETS + 2, np.int64)
    keys = np.empty(max_length)
    for request in range(num_requests):
        before = np.inf
        for place in range(num_proposers):
            proposer = proposers[request, place]
            if proposer == NO_PROPOSER:
                break
            limit = candidates.limits[request, proposer]
            worth, tokens, best, num_first = -rate * candidates.entry[request, proposer], 0.0, -np.inf, 0
            for k in range(limit):
                gain, token = candidates.gains[proposer, request, k], candidates.draft_tokens[proposer, request, k]
                keys[k] = gain / token - rate * candidates.drafting[proposer, TOKEN]
                worth += keys[k] * token
                tokens += token
                if worth > best * tokens:
                    best, num_first = worth / tokens, k + 1
            keys[:num_first] = best
            before = min(before, keys[0])
            for k in range(limit):
                bucket = int((1 - min(keys[k], before)) * _NUM_BUCKETS)
                bucket = min(max(bucket, 0), _NUM_BUCKETS - 1)
                bucket_of[request, place, k] = bucket
                starts[bucket + 1] += 1
    starts = np.cumsum(starts)
    count = starts[_NUM_BUCKETS]
    ranked = np.empty((4, count), np.int64)
    # Shorter drafts first within a bucket, so that all requests share a proposer's common costs.
    for place in range(num_proposers):
        for k in range(max_length):
            for request in range(num_requests):
                bucket = bucket_of[request, place, k]
                if bucket < _NUM_BUCKETS:
                    at = starts[bucket]
                    starts[bucket] += 1
                    ranked[0, at], ranked[1, at] = request * num_proposers + place, request
                    ranked[2, at], ranked[3, at] = proposers[request, place], k
    return _RankedPositions(ranked[0], ranked[1], ranked[2], ranked[3])


@compiled
def _scan(
    candidates: CandidateDrafts, in_order: _RankedPositions, bounds: Ints, max_positions: int, lengths: Ints
) -> Value:
    """Admits positions one by one, and returns the best value of any prefix.

    Args:
        candidates: expected drafts and costs.
        in_order: positions in the order of admission.
        bounds: [L], maximum draft tokens of each proposer; 0 excludes it.
        max_positions: number of positions after which it ends; -1 is all.
        lengths: [n * L], written: admitted positions of each place.
    """
    num_proposers, num_requests, _ = candidates.gains.shape
    lengths[:] = 0
    # Per place its probability, per request that of a further one; per request the longest draft, and their sum.
    reach, next_reach = np.empty(num_requests * num_proposers), np.ones(num_requests)
    widest, num_asked = np.zeros(num_requests, np.int64), 0
    # Per proposer: its longest draft, the probability that it is not tried, and the seconds that its requests share.
    longest, idle, shared = np.zeros(num_proposers, np.int64), np.ones(num_proposers), np.zeros(num_proposers)
    tokens, rows, drafting, count = float(num_requests + candidates.others), 0.0, 0.0, 0
    best_count, best_tokens, best_rows, best_seconds = 0, tokens, 0.0, candidates.step[0]
    for i in range(len(in_order.place)):
        if count == max_positions:
            break
        place, request = in_order.place[i], in_order.request[i]
        proposer, position = in_order.proposer[i], in_order.position[i]
        # Positions after one without room are left out too.
        if position >= bounds[proposer] or position != lengths[place]:
            continue
        if position >= widest[request]:
            if num_asked == candidates.max_draft_tokens:
                continue
            num_asked += 1
            widest[request] = position + 1
        lengths[place] = position + 1
        count += 1
        if position == 0:
            reach[place] = next_reach[request]
            next_reach[request] *= 1 - candidates.draft_tokens[proposer, request, 0]
        asked = 1.0 if candidates.unconditional[proposer] else reach[place]
        if position == 0:
            idle[proposer] *= 1 - asked
            drafting += asked * candidates.entry[request, proposer]
        token = candidates.draft_tokens[proposer, request, position]
        tokens += reach[place] * candidates.gains[proposer, request, position]
        rows += reach[place] * token
        drafting += asked * token * candidates.drafting[proposer, TOKEN]
        if position == 0 or position >= longest[proposer]:
            longest[proposer] = max(longest[proposer], position + 1)
            costs = candidates.drafting[proposer]
            drafting -= shared[proposer]
            shared[proposer] = (1 - idle[proposer]) * (costs[ASKING] + costs[POSITION] * longest[proposer])
            drafting += shared[proposer]
        seconds = _verifying(candidates.step, rows) + drafting
        if tokens * best_seconds > best_tokens * seconds:
            best_count, best_tokens, best_rows, best_seconds = count, tokens, rows, seconds
    return Value(best_count, best_tokens, best_rows, best_seconds)


@compiled
def _equal_or_less(candidates: CandidateDrafts, lengths: Ints, value: Value, uneven_seconds: float) -> Value:
    """Replaces a plan by one of equal lengths, or by none, where that is better; of a single proposer.

    A full CUDA graph is replayed for equal lengths only.

    Args:
        candidates: expected drafts, of all requests of the step.
        lengths: [n, 1], the plan's draft tokens per request, changed in place.
        value: of that plan, as if unequal lengths cost nothing.
        uneven_seconds: seconds by which a step takes longer if its requests have unequal lengths.
    """
    num_requests, costs = len(lengths), candidates.drafting[0]
    plain = Value(0, float(num_requests), 0.0, candidates.step[0])
    best = Value(value.positions, value.tokens, value.rows, value.seconds + uneven_seconds)
    tokens, rows, chosen = float(num_requests), 0.0, -1
    for length in range(1, min(candidates.limits.min(), candidates.max_draft_tokens // num_requests) + 1):
        tokens += candidates.gains[0, :, length - 1].sum()
        rows += candidates.draft_tokens[0, :, length - 1].sum()
        seconds = _verifying(candidates.step, rows) + costs[ASKING] + costs[POSITION] * length + costs[TOKEN] * rows
        if tokens * best.seconds > best.tokens * seconds:
            best, chosen = Value(num_requests * length, tokens, rows, seconds), length
    if plain.tokens * best.seconds > best.tokens * plain.seconds:
        best, chosen = plain, 0
    if chosen >= 0:
        lengths[:] = chosen
    return best


@compiled
def _verifying(step: Floats, rows: float) -> float:
    """Returns the seconds of a step with that many draft tokens, from seconds by their number."""
    below = int(rows)
    seconds: float = step[below] + (rows - below) * (step[below + 1] - step[below])
    return seconds
