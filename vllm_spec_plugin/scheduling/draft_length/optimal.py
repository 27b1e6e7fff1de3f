"""How many tokens to draft for each request of a batch, and who: the plans worth looking at, and the best of them."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.scheduling.draft_length.plan_sizes import best_by_size, lengths_at
from vllm_spec_plugin.scheduling.draft_length.turn_order import CODE, MOST_CODED, by_worth, encode, turns_by_worth
from vllm_spec_plugin.turns import Turns

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Offers:
    """What L proposers are expected to do for n requests, for up to K places of a draft each, and what it costs.

    A place is a token, or a whole tree.

    Attributes:
        there: [L, n], the probability that there is a guess.
        gains: [L, n, K], accepted tokens that asking for the k-th place adds.
        delivered: [L, n, K], draft tokens to be expected in it. Gains per delivered token fall along k.
        entry: [L, n], seconds that a request's first draft token takes besides: catching up with its text.
        limits: [n, L], most places.
        unit: [n, L], tokens that are asked for per place.
        draft: [L, 3], seconds that drafting takes in a step at all, per place of the longest draft, and per token.
        step: [>= draft tokens that can come of it + 2], seconds of the target by the draft tokens that it verifies.
        most_tokens: most draft tokens to ask for, of each request with the longest of its turns: what token budget and
            KV blocks allow.
        others: output tokens of requests beside the n.
    """

    there: Floats
    gains: Floats
    delivered: Floats
    entry: Floats
    limits: Ints
    unit: Ints
    draft: Floats
    step: Floats
    most_tokens: int
    others: int = 0


@dataclass(frozen=True)
class Plans:
    """A plan for each number of places in the batch, from none to m.

    Attributes:
        offers: what they are made of.
        proposers: [n, L], who has each turn, `NOBODY` after the last one.
        reach: [n, L], the probability that it comes.
        order: [.], whose turn, r * L + t for request r's (t+1)-th one, in the order of the places' worth.
        places: [.], which place of it.
        bounds: [2, L], bounds on each proposer's longest draft.
        which: [m + 1], the one of them that each plan keeps.
        tokens: [m + 1], expected output tokens of the step.
        rows: [m + 1], draft tokens that are expected to be there and verified.
        seconds: [m + 1], what the step is expected to take.
        top: the plan with the most tokens per second.
    """

    offers: Offers
    proposers: Ints
    reach: Floats
    order: Ints
    places: Ints
    bounds: Ints
    which: Ints
    tokens: Floats
    rows: Floats
    seconds: Floats
    top: int

    def best(self, bias: float = 0.0) -> int:
        """The number of places that gives the most expected tokens per second; 0 where none pays.

        Args:
            bias: how much better than no drafts it must be, as a share; below 0 it may be worse.
        """
        least = self.tokens[0] / self.seconds[0] * (1 + bias)
        if self.top:
            return self.top if self.rate(self.top) > least else 0
        rates = self.tokens / self.seconds
        rates[0] = least
        return int(np.argmax(rates))

    def rate(self, size: int) -> float:
        """Expected tokens per second of a plan."""
        return float(self.tokens[size] / self.seconds[size])

    def losses(self, best: int) -> Floats:
        """[m + 1]: seconds that each plan is expected to cost more than it is worth at the best one's rate."""
        loss: Floats = self.seconds - self.tokens * (self.seconds[best] / self.tokens[best])
        return loss

    def lengths(self, size: int) -> Ints:
        """[n, L]: how many places each turn of a plan has; 0 is no turn."""
        offers = self.offers
        bounds = self.bounds[self.which[size]]
        return lengths_at(self.order, self.places, self.proposers, offers.unit, bounds, offers.most_tokens, size)

    def turns(self, lengths: Ints) -> list[Turns]:
        """Each request's turns, of so many places, [n, L]."""
        return [_turns(code) for code in encode(lengths, self.proposers, self.offers.unit).tolist()]


@cache
def _turns(code: int) -> Turns:
    """What `encode` wrote."""
    turns: Turns = ()
    while code:
        turns = ((code % CODE // MOST_CODED, code % MOST_CODED), *turns)
        code //= CODE
    return turns


def plans(offers: Offers, takes_part: Bools, rate: float, row_seconds: float) -> Plans:
    """The best distribution of each number of places over the requests and proposers, and what it is worth.

    Wanted are the most expected output tokens per second, (n + others + sum of gains) / (step + draft): with one
    request, one proposer, a verification that costs nothing and the same acceptance everywhere, theorem 3.8 of
    Leviathan et al. (2023). Each request's proposers are asked in the order of what they are worth to it. Gains per
    delivered token fall along each draft, so the most gain for a number of tokens is the beginning of one list, all
    turns' tokens by falling gain, whatever shape the step's time has. Passes of a draft model cost by the longest
    draft, so this is done for each bound on it. What makes it a greedy choice: entries, costs that a proposer's
    requests share, and turns that come only if others fail.

    Args:
        offers: for at least one request.
        takes_part: [L], which proposers may be asked at all.
        rate: output tokens that a second is worth: as many as are made in one.
        row_seconds: what another draft token costs the target, about.
    """
    gains, delivered, entry, limits, draft = offers.gains, offers.delivered, offers.entry, offers.limits, offers.draft
    proposers, reach = turns_by_worth(
        gains, delivered, offers.there, entry, limits, draft, takes_part, rate, row_seconds
    )
    order, places = by_worth(proposers, gains, delivered, entry, limits, draft, rate)
    tokens, rows, seconds, which, bounds, top = best_by_size(
        order,
        places,
        proposers,
        reach,
        gains,
        delivered,
        entry,
        offers.unit,
        draft,
        offers.step,
        offers.most_tokens,
        offers.others,
    )
    return Plans(offers, proposers, reach, order, places, bounds, which, tokens, rows, seconds, top)
