"""Who drafts and how much, as it pays most by measured acceptance and measured time."""

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.comparison import ComparedStep, Comparison
from vllm_spec_plugin.scheduling.draft_length.control import Batch, Forecast, Measured, Wish
from vllm_spec_plugin.scheduling.draft_length.exploring import Purse
from vllm_spec_plugin.scheduling.draft_length.lane import Lane
from vllm_spec_plugin.scheduling.draft_length.optimal import ROWS, SECONDS, TOKENS, Offers, Plans, plans
from vllm_spec_plugin.scheduling.draft_length.outcomes import Outcomes
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows
from vllm_spec_plugin.scheduling.draft_length.rooms import as_places, catching_up
from vllm_spec_plugin.scheduling.draft_length.step_cost import StepCost
from vllm_spec_plugin.scheduling.draft_length.trials import asked_first, longest_due, were_asked
from vllm_spec_plugin.turns import Turns

# How much better than no drafts a plan must be to begin drafting, and to go on with it.
BEGIN, GO_ON = 0.03, 0.0
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

    Now and then it does something else, for a share of the time: one draft token of a request that a proposer does
    not draft for, as that may have changed. Whether drafting gains at all is measured, in blocks of steps without
    (comparison.py), which also are of other sizes than the rest.

    Attributes:
        lanes: what is known of each proposer.
        step_cost: of the target's steps.
        forecast: of the latest plan.
    """

    is_constant = False

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
        # This very method, as it is called for each request in each step.
        self.verified = self._outcomes.verified
        # The step in which each lane was last asked first for each request, counted from 1.
        self._asked = requests.column(len(lanes))
        self._step = 0
        # What drafts cost, as `Offers` has it.
        self._draft = np.empty((len(lanes), 3))
        self._for_lanes = [Purse(explore / len(lanes)) for _ in lanes]
        self._last_tried = 0
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
        self._comparison = Comparison()

    def is_off(self, num_requests: int) -> bool:
        """Where drafts lose against steps without any, by measurement, and while the latter are measured."""
        is_off = self._comparison.is_off(num_requests)
        if is_off:
            self.forecast = None
            self._learn()
        return is_off

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[Turns]:
        """Each request's turns, up to their limits."""
        self.forecast = None
        self._learn()
        self._step += 1
        if not wishes:
            return []
        request_ids, limits, gaps, _ = zip(*wishes, strict=True)
        rows = self._requests.add(request_ids)
        catch_up, offers = self._offers(rows, limits, gaps, batch)
        choices = self._choose_set(offers)
        best = choices.best(GO_ON if self._is_on else BEGIN)
        self._is_on = best > 0
        self._speedup = choices.rate(best) / choices.rate(0)
        self._rows = choices.sized.item(ROWS, best) / len(wishes)
        tried = ""
        lengths, turns = choices.at(best)
        asked, trial = self._asked.values, self._other_lane(choices, lengths, rows, catch_up)
        if trial is not None:
            lane, request = trial
            tried = "proposer" if turns[request] else "request"
            unit = int(offers.unit[request, lane])
            turns[request] = ((lane, unit), *(turn for turn in turns[request] if turn[0] != lane))
            asked[rows[request], lane] = self._step
        asked_first(asked, rows, choices.proposers, lengths, self._step)
        self.forecast = Forecast(
            choices.sized.item(TOKENS, best),
            choices.sized.item(SECONDS, best),
            len(wishes) + batch.others,
            choices.sized.item(SECONDS, 0),
            tuple([tuple(lane.expectation.acceptance.tolist()) for lane in self.lanes]),
            tried,
        )
        return turns

    def _offers(
        self, rows: Ints, limits: Sequence[tuple[int, ...]], gaps: Sequence[tuple[int, ...]], batch: Batch
    ) -> tuple[Floats, Offers]:
        """[L, n] seconds of catching up, and what is to be had."""
        num_lanes = len(self.lanes)
        shape = num_lanes, len(rows)
        places, unit, most_rows = as_places(_table(limits, num_lanes), self._num_places, self._is_tree)
        most_tokens = max(batch.most_tokens, 0)
        per_token = np.array([lane.draft_cost.catch_up_seconds for lane in self.lanes])
        catch_up, entry = catching_up(_table(gaps, num_lanes), per_token, CATCH_UP_STEPS)
        there, gains, delivered = (
            np.empty(shape),
            np.empty((*shape, self._most_places)),
            np.empty((*shape, self._most_places)),
        )
        for place, lane in enumerate(self.lanes):
            lane.expectation.promise(rows, there[place], gains[place], delivered[place])
            if lane.expectation.is_tree:
                # Less of it where there is no room for all.
                delivered[place, :, 0] = np.minimum(delivered[place, :, 0], there[place] * unit[:, place])
            self._draft[place] = lane.draft_cost.coefficients
        num_rows = min(most_rows, most_tokens) + 2
        step = self.step_cost.seconds_from(batch.base_tokens, num_rows, batch.num_requests, batch.context)
        return catch_up, Offers(
            there, gains, delivered, entry, places, unit, self._draft, step, most_tokens, batch.others
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

    def _learn(self) -> None:
        """Learns from all that was noted."""
        noted = self._outcomes.take()
        if noted is None:
            return
        rows = self._requests.add(noted.request_ids)
        for lane, fates in zip(self.lanes, noted.fates, strict=True):
            asked, drafted, accepted = fates
            lane.expectation.learn(rows, asked, drafted, accepted, noted.num_tokens)
        were_asked(self._asked.values, rows, noted.fates, self._step)

    def measured(self, step: Measured) -> None:
        """Learns what a step took."""
        drafts = any(drafting.longest for drafting in step.drafting)
        target_seconds = step.seconds - sum([drafting.seconds for drafting in step.drafting])
        self.step_cost.observe(
            step.num_tokens,
            step.num_requests,
            step.context,
            target_seconds,
            has_drafts=step.has_drafts or drafts,
        )
        for lane, drafting, purse in zip(self.lanes, step.drafting, self._for_lanes, strict=True):
            lane.measured(drafting)
            purse.served(step.seconds)
        self._compare(step, drafts=drafts)

    def _compare(self, step: Measured, *, drafts: bool) -> None:
        """Tells steps with drafts from those without, which drafting has to gain against."""
        forecast, accepted, catch_up = step.forecast, step.num_accepted, 0.0
        for lane, drafting in zip(self.lanes, step.drafting, strict=True):
            catch_up += min(drafting.caught_up * lane.draft_cost.catch_up_seconds, drafting.seconds)
        expected = accepted if forecast is None else forecast.tokens - forecast.plain_tokens
        compared = ComparedStep(
            step.num_tokens - step.num_drafts,
            step.num_requests,
            step.context,
            step.seconds,
            expected if step.has_drafts else 0,
            accepted,
            catch_up,
            step.has_drafts,
            drafts,
        )
        # Where nothing is drafted but to learn, the budget for that pays: of drafts that it verifies or makes.
        is_trial = any(plan is not None and plan.is_trial for plan in (forecast, self.forecast))
        self._comparison.measured(compared, self.step_cost, counts=not is_trial)

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Begins again with what steps took at start-up."""
        self.step_cost = StepCost(self._max_step_tokens, steps)
        seconds = float(self.step_cost.seconds([1.0], 1, 0)[0])
        for lane in self.lanes:
            lane.probed(seconds)

    def forget(self, request_id: str) -> None:
        """A request is gone."""
        self._learn()
        self._outcomes.forget(request_id)
        self._requests.forget(request_id)


def _table(of_requests: Sequence[tuple[int, ...]], num_lanes: int) -> Ints:
    """[n, L]: whole numbers of each request, per proposer; mostly all requests have the same."""
    if of_requests.count(of_requests[0]) == len(of_requests):
        table = np.empty((len(of_requests), num_lanes), np.int64)
        table[:] = of_requests[0]
        return table
    count = len(of_requests) * num_lanes
    return np.fromiter(chain.from_iterable(of_requests), np.int64, count).reshape(-1, num_lanes)
