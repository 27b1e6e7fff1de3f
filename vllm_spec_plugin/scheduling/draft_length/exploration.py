"""Tries, now and then, what does not look best, to learn whether it is, at a bounded share of the time."""

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints, compiled
from vllm_spec_plugin.scheduling.draft_length.allocation import ASKING, NO_PROPOSER, POSITION, TOKEN, Offers
from vllm_spec_plugin.scheduling.draft_length.outcomes import ASKED

# Most of served time that a budget is a share of: a long phase without trials does not allow many at once.
_MOST_SECONDS, _MOST_STEPS = 60.0, 400
_SHORTEST = 1e-9


class ExplorationBudget:
    """A share of all time served, to be spent on trials.

    Args:
        share: of the time, from 0 to below 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.seconds = 0.0
        self._step_seconds = _MOST_SECONDS

    @property
    def capacity(self) -> float:
        """Most seconds that it holds."""
        return self._share * min(_MOST_SECONDS, _MOST_STEPS * self._step_seconds)

    def served(self, seconds: float) -> None:
        """Adds a step's time."""
        self._step_seconds += (seconds - self._step_seconds) / (16 if self._step_seconds < _MOST_SECONDS else 1)
        self.seconds = min(self.seconds + self._share * seconds, self.capacity)

    def can_pay(self, seconds: float) -> bool:
        """Whether it holds as much; a full one pays any price, and is in debt then."""
        return self.seconds > 0 and (seconds <= self.seconds or self.seconds >= self.capacity)

    def pay(self, seconds: float) -> None:
        """Spends seconds."""
        self.seconds -= seconds


@compiled
def pick_trials(
    offers: Offers, lengths: Ints, proposers: Ints, catch_up: Floats, asked: Floats, rows: Ints, now: int, rate: float
) -> tuple[Ints, Floats]:
    """Picks for each proposer the request to ask it for one draft token first, and the price.

    That is the request that has waited longest per second of the price. The price is the time that the trial adds, and
    what the request's planned turns lose where the trial has a draft; what it gains is not counted on.

    Args:
        offers: what a plan was made of.
        lengths: [n, L], draft tokens of each planned turn.
        proposers: [n, L], proposer of each.
        catch_up: [L, n], seconds of catching up with a request's tokens.
        asked: [., L], the step in which each proposer was last asked for each request; 0 becomes `now`.
        rows: [n], the requests' rows of `asked`.
        now: the step.
        rate: output tokens per second at present.

    Returns:
        [L] requests, -1 where there is none, and [L] seconds.
    """
    num_proposers, num_requests, _ = offers.gains.shape
    picked, prices, due = np.full(num_proposers, -1), np.zeros(num_proposers), np.zeros(num_proposers)
    longest, widest = np.zeros(num_proposers, np.int64), np.zeros(num_requests, np.int64)
    gains, first = np.zeros(num_requests), np.full(num_requests, NO_PROPOSER)
    for request in range(num_requests):
        reach = 1.0
        for turn in range(num_proposers):
            length, proposer = lengths[request, turn], proposers[request, turn]
            if proposer != NO_PROPOSER and length:
                first[request] = proposer if first[request] == NO_PROPOSER else first[request]
                longest[proposer] = max(longest[proposer], length)
                widest[request] = max(widest[request], length)
                gains[request] += reach * offers.gains[proposer, request, :length].sum()
                reach *= 1 - offers.draft_prob[proposer, request]
    num_asked = widest.sum()
    # A step's first draft token costs more than the others.
    at = min(num_asked, len(offers.step) - 2)
    row_seconds = offers.step[at + 1] - offers.step[at]
    for proposer in range(num_proposers):
        costs = offers.drafting[proposer]
        seconds = 0.0 if longest[proposer] else costs[ASKING] + costs[POSITION]
        for request in range(num_requests):
            if offers.limits[request, proposer] <= 0 or first[request] == proposer:
                continue
            if widest[request] == 0 and num_asked >= offers.most_tokens:
                continue
            tokens = offers.draft_tokens[proposer, request, 0]
            price = seconds + tokens * costs[TOKEN] + catch_up[proposer, request]
            if widest[request] == 0:
                price += tokens * row_seconds
            price += offers.draft_prob[proposer, request] * gains[request] / rate
            price = max(price, _SHORTEST)
            # What is known of all requests is good enough for a new one for a while.
            if asked[rows[request], proposer] == 0:
                asked[rows[request], proposer] = now
            waited = now - asked[rows[request], proposer]
            if picked[proposer] < 0 or waited / price > due[proposer]:
                picked[proposer], prices[proposer], due[proposer] = request, price, waited / price
    return picked, prices


@compiled
def note_asked(asked: Floats, rows: Ints, of_proposers: Ints, now: int) -> None:
    """Notes which proposers were asked.

    Args:
        asked: [., L], the step in which each proposer was last asked for each request; changed in place.
        rows: [n], the requests' rows of it.
        of_proposers: [L, 3, n], outcomes per proposer, as in `Outcomes.of_proposers`.
        now: the step.
    """
    for proposer in range(len(of_proposers)):
        for i in range(len(rows)):
            if of_proposers[proposer, ASKED, i] > 0:
                asked[rows[i], proposer] = now
