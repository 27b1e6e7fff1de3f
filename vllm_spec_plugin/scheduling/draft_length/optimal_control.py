"""Who drafts and how much, as it pays most by measured acceptance and measured time."""

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.control import Batch, Fate, Forecast, Measured, Wish
from vllm_spec_plugin.scheduling.draft_length.exploring import Purse, Sizes
from vllm_spec_plugin.scheduling.draft_length.lane import Lane
from vllm_spec_plugin.scheduling.draft_length.optimal import Floats, Ints, Offers, Plans, plans
from vllm_spec_plugin.scheduling.draft_length.outcomes import Outcomes
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows
from vllm_spec_plugin.scheduling.draft_length.step_cost import StepCost
from vllm_spec_plugin.scheduling.draft_length.trials import asked_first, longest_due
from vllm_spec_plugin.scheduling.draft_length.turn_order import as_places
from vllm_spec_plugin.turns import Turns

# How much better than no drafts a plan must be to begin drafting, and to go on with it.
BEGIN, GO_ON = 0.02, -0.01
# How much better others must be than those who take part, to take their place.
CHANGE = 0.01
# Every so many steps they are compared with one of the other sets: that takes as long as planning.
COMPARE_STEPS = 4
# Steps that catching up with a request's text is spread over: once begun, a draft is likely to go on.
CATCH_UP_STEPS = 32


class OptimalControl:
    """Chooses who drafts how much for the most expected tokens per second of the batch; nobody is a choice, too.

    Which proposers take part at all is decided for all requests together, as the passes of a draft model are shared:
    those that take part are compared with the other sets from time to time.

    Now and then it does something else, for a share of the time: half of it goes to requests that a proposer does
    not draft for, as that may have changed, half to steps of sizes that were not measured for long.

    Attributes:
        lanes: what is known of each proposer.
        step_cost: of the target's steps.
        forecast: of the latest plan.
    """

    def __init__(
        self, lanes: Sequence[Lane], requests: RequestRows, max_step_tokens: int, explore: float = 0.01
    ) -> None:
        """Knows nothing of what steps take yet.

        Args:
            lanes: of each proposer, in their order.
            requests: whose rows the lanes' expectations use.
            max_step_tokens: most tokens of a step.
            explore: share of the time that may be spent on what does not look best, from 0 to below 1.
        """
        self.lanes = tuple(lanes)
        self.step_cost = StepCost(max_step_tokens)
        self._max_step_tokens = max_step_tokens
        self._requests = requests
        self._outcomes = Outcomes(len(lanes))
        # The step in which each lane was last asked first for each request, counted from 1.
        self._asked = requests.column(len(lanes))
        self._step = 0
        self._for_lanes = [Purse(explore / 2 / len(lanes)) for _ in lanes]
        self._last_tried = 0
        self._for_sizes = Purse(explore / 2)
        self._sizes = Sizes()
        self._num_places = np.array([lane.expectation.num_places for lane in lanes])
        self._most_places = int(self._num_places.max())
        self._is_tree = np.array([lane.expectation.is_tree for lane in lanes])
        places = range(len(lanes))
        self._sets = [
            np.isin(places, chosen) for count in range(len(lanes), 0, -1) for chosen in combinations(places, count)
        ]
        # Which of the sets takes part, and which others are compared with it next; at first all.
        self._set = 0
        self._others = list(range(1, len(self._sets)))
        self._is_new = True
        self._is_on = False
        # Of the latest plan: how many times the tokens per second of no drafts, and draft tokens per request.
        self._speedup, self._rows = 1.0, 0.0
        self.forecast: Forecast | None = None

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[Turns]:
        """Each request's turns, up to their limits."""
        self.forecast = None
        self._learn()
        self._step += 1
        if not wishes:
            return []
        rows = self._requests.add([wish.request_id for wish in wishes])
        catch_up, offers = self._offers(wishes, rows, batch)
        choices = self._choose_set(offers)
        best = choices.best(GO_ON if self._is_on else BEGIN)
        self._is_on = best > 0
        self._speedup = choices.rate(best) / choices.rate(0)
        self._rows = float(choices.rows[best]) / len(wishes)
        size, tried = best, ""
        other = self._other_size(choices, best, batch.base_tokens)
        if other is not None:
            size, tried = other, "size"
        lengths = choices.lengths(size)
        turns = choices.turns(lengths)
        asked = self._asked.values
        if not tried:
            trial = self._other_lane(choices, lengths, rows, catch_up)
            if trial is not None:
                lane, request = trial
                tried = "proposer" if turns[request] else "request"
                unit = int(offers.unit[request, lane])
                turns[request] = ((lane, unit), *(turn for turn in turns[request] if turn[0] != lane))
                asked[rows[request], lane] = self._step
        asked_first(asked, rows, choices.proposers, lengths, self._step)
        self.forecast = Forecast(
            float(choices.tokens[size]),
            float(choices.seconds[size]),
            len(wishes) + batch.others,
            float(choices.seconds[0]),
            tuple([tuple(lane.expectation.acceptance.tolist()) for lane in self.lanes]),
            tried,
        )
        return turns

    def _offers(self, wishes: Sequence[Wish], rows: Ints, batch: Batch) -> tuple[Floats, Offers]:
        """[L, n] seconds of catching up, and what is to be had."""
        num_lanes, num_requests = len(self.lanes), len(wishes)
        count = num_lanes * num_requests
        tokens = np.fromiter(chain.from_iterable([wish.limits for wish in wishes]), np.int64, count)
        limits, unit, most_rows = as_places(tokens.reshape(num_requests, num_lanes), self._num_places, self._is_tree)
        most_rows = min(most_rows, max(batch.most_tokens, 0))
        gaps = np.fromiter(chain.from_iterable([wish.gaps for wish in wishes]), np.float64, count)
        per_token = [lane.draft_cost.catch_up_seconds for lane in self.lanes]
        catch_up = np.ascontiguousarray((gaps.reshape(num_requests, num_lanes) * per_token).T)
        there = np.empty((num_lanes, num_requests))
        gains, delivered = np.zeros((2, num_lanes, num_requests, self._most_places))
        for place, lane in enumerate(self.lanes):
            promised = lane.expectation.promises(rows)
            num_places = lane.expectation.num_places
            there[place] = promised.there
            gains[place, :, :num_places] = promised.gains
            delivered[place, :, :num_places] = promised.delivered
            if lane.expectation.is_tree:
                # Less of it where there is no room for all.
                delivered[place, :, 0] = np.minimum(delivered[place, :, 0], promised.there * unit[:, place])
        return catch_up, Offers(
            there,
            gains,
            delivered,
            catch_up / CATCH_UP_STEPS,
            limits,
            unit,
            np.array([lane.draft_cost.coefficients for lane in self.lanes]),
            self.step_cost.seconds_from(batch.base_tokens, most_rows + 2, batch.num_requests, batch.context),
            max(batch.most_tokens, 0),
            batch.others,
        )

    def _choose_set(self, offers: Offers) -> Plans:
        """The plans of those proposers that take part, which may be others than before."""
        num_requests, step = len(offers.limits), offers.step
        rate = self._speedup * (num_requests + offers.others) / float(step[0])
        # About where the last plan was, as the curve may have a knee.
        last = min(int(self._rows * num_requests) + num_requests, len(step) - 1)
        first = max(min(int(self._rows * num_requests) - num_requests, last - 1), 0)
        row_seconds = float(step[last] - step[first]) / (last - first)
        chosen = plans(offers, self._sets[self._set], rate, row_seconds)
        for other in self._compared():
            plan = plans(offers, self._sets[other], rate, row_seconds)
            if plan.rate(plan.top) > chosen.rate(chosen.top) * (1 + CHANGE):
                self._others[self._others.index(other)] = self._set
                self._set, chosen = other, plan
        return chosen

    def _compared(self) -> list[int]:
        """The sets to compare with the one that takes part: now and then the next one of the others; at first all."""
        if self._is_new:
            self._is_new = False
            return list(self._others)
        if self._step % COMPARE_STEPS:
            return []
        self._others = self._others[1:] + self._others[:1]
        return self._others[:1]

    def _other_size(self, choices: Plans, best: int, base_tokens: int) -> int | None:
        """A plan whose size was not measured for long, if it can be paid for."""
        losses = choices.losses(best)
        size = self._sizes.choose(base_tokens + choices.rows, losses, self._for_sizes.seconds)
        if size is None or size == best:
            return None
        self._for_sizes.pay(max(float(losses[size]), 0.0))
        return size

    def _other_lane(self, choices: Plans, lengths: Ints, rows: Ints, catch_up: Floats) -> tuple[int, int] | None:
        """A proposer and the request that it is to be tried on, if they can be paid for."""
        offers, purses, places = choices.offers, self._for_lanes, range(len(self.lanes))
        if not any(purse.seconds > 0 for purse in purses):
            return None
        rate = self._speedup * (len(rows) + offers.others) / float(offers.step[0])
        at = min(int(self._rows * len(rows)), len(offers.step) - 2)
        unknown = np.array([lane.is_unknown for lane in self.lanes])
        chosen, prices = longest_due(
            choices.proposers,
            choices.reach,
            lengths,
            offers.gains,
            offers.delivered,
            offers.there,
            offers.limits,
            offers.unit,
            offers.draft,
            catch_up,
            self._asked.values,
            rows,
            self._step,
            rate,
            float(offers.step[at + 1] - offers.step[at]),
            offers.most_tokens,
            purses[0].capacity,
            unknown,
        )
        payable = [place for place in places if chosen[place] >= 0 and purses[place].can_pay(float(prices[place]))]
        if not payable:
            return None
        # The next one after the last one: of cheap ones there is always one to try.
        lane = min(payable, key=lambda place: (place <= self._last_tried, place))
        self._last_tried = lane
        purses[lane].pay(float(prices[lane]))
        return lane, int(chosen[lane])

    def verified(self, request_id: str, fate: Fate) -> None:
        """Notes how a request's drafts fared."""
        self._outcomes.verified(request_id, fate)

    def advance(self, request_id: str, num_tokens: int) -> None:
        """A request's text grew."""
        self._outcomes.advance(request_id, num_tokens)

    def _learn(self) -> None:
        """Learns from all that was noted."""
        noted = self._outcomes.take()
        if noted is None:
            return
        rows = self._requests.add(noted.request_ids)
        for place, lane in enumerate(self.lanes):
            asked = noted.asked[place]
            lane.expectation.learn(rows, asked, noted.drafted[place], noted.accepted[place], noted.num_tokens)
            self._asked.values[rows[asked > 0], place] = self._step

    def measured(self, step: Measured) -> None:
        """Learns what a step took."""
        target_seconds = step.seconds - sum([drafting.seconds for drafting in step.drafting])
        self.step_cost.observe(step.num_tokens, step.num_requests, step.context, target_seconds)
        for lane, drafting, purse in zip(self.lanes, step.drafting, self._for_lanes, strict=True):
            lane.measured(drafting)
            purse.served(step.seconds)
        self._sizes.measured(step.num_tokens)
        self._for_sizes.served(step.seconds)

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Begins again with what steps took at start-up."""
        self.step_cost = StepCost(self._max_step_tokens, steps)
        seconds = float(self.step_cost.seconds([1.0], 1, 0)[0])
        for lane in self.lanes:
            lane.probed(seconds)

    def forget(self, request_id: str) -> None:
        """A request is gone."""
        self._learn()
        self._requests.forget(request_id)
