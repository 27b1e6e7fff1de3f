"""How many tokens to draft for each request of a batch, and who: the plans worth looking at, and the best of them."""

from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.arrays import Bools, Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.plan_sizes import best_plans, turns_at
from vllm_spec_plugin.scheduling.draft_length.turn_codes import TURNS_OF
from vllm_spec_plugin.turns import Turns

# Rows of `Plans.sized`.
TOKENS, ROWS, SECONDS = range(3)


class Offers(NamedTuple):
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


class Plans(NamedTuple):
    """A plan for each number of places in the batch, from none to m.

    Attributes:
        offers: what they are made of.
        proposers: [n, L], who has each turn, `NOBODY` after the last one.
        reach: [n, L], the probability that it comes.
        order: [.], whose turn, r * L + t for request r's (t+1)-th one, in the order of the places' worth.
        places: [.], which place of it.
        sized: [3, m + 1], of each plan the expected output tokens of the step, draft tokens that are expected to be
            there and verified, and seconds that the step is expected to take.
        which: [m + 1], the one of the bounds that each plan keeps.
        bounds: [2, L], bounds on each proposer's longest draft.
        top: the plan with the most tokens per second.
    """

    offers: Offers
    proposers: Ints
    reach: Floats
    order: Ints
    places: Ints
    sized: Floats
    which: Ints
    bounds: Ints
    top: int

    @property
    def rows(self) -> Floats:
        """[m + 1]: draft tokens of each plan."""
        rows: Floats = self.sized[ROWS]
        return rows

    def best(self, bias: float = 0.0) -> int:
        """The number of places that gives the most expected tokens per second; 0 where none pays.

        Args:
            bias: how much better than no drafts it must be, as a share; below 0 it may be worse.
        """
        least = self.rate(0) * (1 + bias)
        if self.top:
            return self.top if self.rate(self.top) > least else 0
        rates = self.sized[TOKENS] / self.sized[SECONDS]
        rates[0] = least
        return int(np.argmax(rates))

    def rate(self, size: int) -> float:
        """Expected tokens per second of a plan."""
        return self.sized.item(TOKENS, size) / self.sized.item(SECONDS, size)

    def at(self, size: int) -> tuple[Ints, list[Turns]]:
        """A plan: [n, L] how many places each turn has, 0 is no turn; and each request's turns."""
        offers, bounds = self.offers, self.bounds[self.which.item(size)]
        lengths, codes = turns_at(
            self.order, self.places, self.proposers, offers.unit, bounds, offers.most_tokens, size
        )
        return lengths, list(map(TURNS_OF.__getitem__, codes.tolist()))


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
    return Plans(offers, *best_plans(*offers, takes_part, rate, row_seconds))
