"""Explores: single draft tokens of proposers that a plan leaves out, for a bounded share of the time."""

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints, compiled
from vllm_spec_plugin.scheduling.draft_length.allocation import ASKING, NO_PROPOSER, POSITION, TOKEN, Offers
from vllm_spec_plugin.scheduling.draft_length.outcomes import ASKED

# Maximum served time that a budget is a share of, so that a long phase without trials does not allow many at once.
_MAX_SECONDS, _MAX_STEPS = 60.0, 400
_SHORTEST = 1e-9


class ExplorationBudget:
    """A share of the served time, for trials.

    Args:
        share: share of the time, from 0 to below 1.

    Attributes:
        seconds: present balance; below 0 is debt.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.seconds = 0.0
        self._step_seconds = _MAX_SECONDS

    @property
    def capacity(self) -> float:
        """Maximum balance, in seconds."""
        return self._share * min(_MAX_SECONDS, _MAX_STEPS * self._step_seconds)

    def served(self, seconds: float) -> None:
        """Adds the share of a step's time."""
        self._step_seconds += (seconds - self._step_seconds) / (16 if self._step_seconds < _MAX_SECONDS else 1)
        self.seconds = min(self.seconds + self._share * seconds, self.capacity)

    def can_pay(self, seconds: float) -> bool:
        """Whether the balance suffices; a full budget pays any price, and is then in debt."""
        return self.seconds > 0 and (seconds <= self.seconds or self.seconds >= self.capacity)

    def pay(self, seconds: float) -> None:
        """Subtracts a price."""
        self.seconds -= seconds


@compiled
def pick_trials(
    offers: Offers, lengths: Ints, proposers: Ints, catch_up: Floats, asked: Floats, rows: Ints, now: int, rate: float
) -> tuple[Ints, Floats]:
    """Picks per proposer the request for a trial, one draft token in a turn before all others, and its price.

    It is the request with the longest wait per second of the price. The price is the time that the trial adds, and the
    loss of the request's planned turns where the trial has a draft; the trial's own gain is not counted.

    Args:
        offers: expected drafts and costs, as for the plan.
        lengths: [n, L], draft tokens of each planned turn.
        proposers: [n, L], proposer of each planned turn.
        catch_up: [L, n], seconds of catching up with a request's text.
        asked: [rows, L], latest step with a turn, by request and proposer; 0 becomes `now`.
        rows: [n], the requests' rows of `asked`.
        now: number of the step.
        rate: present output tokens per second.

    Returns:
        [L] requests, -1 for none, and [L] prices in seconds.
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
            if widest[request] == 0 and num_asked >= offers.max_draft_tokens:
                continue
            tokens = offers.draft_tokens[proposer, request, 0]
            price = seconds + tokens * costs[TOKEN] + catch_up[proposer, request]
            if widest[request] == 0:
                price += tokens * row_seconds
            price += offers.draft_prob[proposer, request] * gains[request] / rate
            price = max(price, _SHORTEST)
            # The average request's estimates serve a new request at first.
            if asked[rows[request], proposer] == 0:
                asked[rows[request], proposer] = now
            waited = now - asked[rows[request], proposer]
            if picked[proposer] < 0 or waited / price > due[proposer]:
                picked[proposer], prices[proposer], due[proposer] = request, price, waited / price
    return picked, prices


@compiled
def note_asked(asked: Floats, rows: Ints, of_proposers: Ints, now: int) -> None:
    """Records the proposers that had turns.

    Args:
        asked: [rows, L], latest step with a turn, by request and proposer; changed in place.
        rows: [n], the requests' rows of `asked`.
        of_proposers: [L, 3, n], outcomes per proposer, as in `Outcomes.of_proposers`.
        now: number of the step.
    """
    for proposer in range(len(of_proposers)):
        for i in range(len(rows)):
            if of_proposers[proposer, ASKED, i] > 0:
                asked[rows[i], proposer] = now
