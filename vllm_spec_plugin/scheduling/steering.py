"""Between vLLM's books and the policy of draft lengths: what a step may draft, and what came of it."""

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.request_options import RequestOptions, read_options
from vllm_spec_plugin.scheduling.draft_length.control import (
    Batch,
    Drafting,
    DraftLengthControl,
    Forecast,
    Measured,
    Wish,
)
from vllm_spec_plugin.turns import Turns, asked, longest

logger = logging.getLogger("vllm.vllm_spec_plugin")


@dataclass
class _Step:
    num_tokens: int
    num_requests: int
    context: int
    has_drafts: bool
    turns: dict[str, Turns] = field(default_factory=dict)
    # Text tokens that a proposer with KV of its own has to compute, of requests that come to it.
    gaps: dict[str, int] = field(default_factory=dict)
    drafting: tuple[Drafting, ...] = ()
    # Requests that got output tokens, and those.
    sampled: set[str] = field(default_factory=set)
    num_output: int = 0
    # Of the drafts that it verifies.
    forecast: Forecast | None = None


class Steering:
    """Asks the policy who is to draft how much in each planned step, and tells it how the drafts fared and what steps
    took.

    All of it happens in the scheduler's process: what the ranks draft is decided once, and sent to them.

    Attributes:
        control: the policy.
        counters: of decisions, since they were last taken.
        latest: of the step planned last, the turns of each request that is drafted for.
    """

    def __init__(self, control: DraftLengthControl, config: PluginConfig, max_model_len: int) -> None:
        """Takes the policy.

        Args:
            control: the policy.
            config: the plugin's.
            max_model_len: most tokens of a text.
        """
        self.control = control
        self._method = config.proposer.method
        self.counters = CountersByMethod()
        self._proposers = config.proposers
        self._most = config.draft_length.tokens
        # Per proposer: no tokens, and as many as most requests may have.
        self._nothing, self._usual = (0,) * len(config.proposers), (self._most,) * len(config.proposers)
        # The proposer that keeps KV, if there is one.
        self._kv_place = config.kv_proposer
        self._max_model_len = max_model_len
        # Of requests that were to be drafted for in the latest step that sampled them: their turns, and who drafted.
        self._waiting: dict[str, tuple[Turns, int | None]] = {}
        # How much of each text that proposer has computed.
        self._seen: dict[str, int] = {}
        # Steps that were planned and whose outcome is not known, and the latest one whose outcome is.
        self._planned: deque[_Step] = deque()
        self._ended: _Step | None = None
        self.latest: dict[str, Turns] = {}
        # Of the latest plan, for the step that verifies its drafts.
        self._forecast: Forecast | None = None
        self._num_foreseen = 0
        self._started: float | None = None

    def plan(self, output: Any, running: Sequence[Request], most_tokens: int) -> dict[str, Turns]:
        """Who drafts how much at the end of a step that vLLM has planned.

        Args:
            output: vLLM's plan.
            running: all running requests.
            most_tokens: tokens that the next step has room for.

        Returns:
            Per request that the step computes tokens of and that is to be drafted for: its turns, at least one.
        """
        for request_id in output.preempted_req_ids or ():
            self._seen.pop(request_id, None)
        wishes, context, base_tokens, others = [], 0, 0, 0
        for request in running:
            scheduled = output.num_scheduled_tokens.get(request.request_id, 0)
            context += request.num_computed_tokens
            if not scheduled:
                continue
            if request.is_prefill_chunk:
                left = request.num_tokens - request.num_computed_tokens
                base_tokens += min(left, max(most_tokens - base_tokens, 0))
            else:
                base_tokens += 1
            limits = self._limits(request)
            if any(limits):
                gaps = self._nothing
                if self._kv_place is not None:
                    gaps = self._gaps(request, request.num_computed_tokens - scheduled, self._kv_place)
                wishes.append(Wish(request.request_id, limits, gaps))
            else:
                others += not request.is_prefill_chunk
        has_drafts = bool(output.scheduled_spec_decode_tokens)
        step = _Step(output.total_num_scheduled_tokens, len(output.num_scheduled_tokens), context, has_drafts)
        if step.num_requests == self._num_foreseen:
            step.forecast = self._forecast
        self._planned.append(step)
        self._forecast, self._num_foreseen = None, step.num_requests
        if wishes:
            batch = Batch(base_tokens, len(running), context, max(most_tokens - base_tokens, 0), others)
            chosen = self.control.plan(wishes, batch)
            for wish, turns in zip(wishes, chosen, strict=True):
                if turns:
                    step.turns[wish.request_id] = turns
                    if self._kv_place is not None:
                        step.gaps[wish.request_id] = wish.gaps[self._kv_place]
            self._forecast = self.control.forecast
            self._count(wishes, chosen)
            if logger.isEnabledFor(logging.DEBUG):
                methods = [proposer.method for proposer in self._proposers]
                logger.debug("%s", explain(wishes, chosen, self._forecast, methods))
        self.latest = step.turns
        return step.turns

    def _count(self, wishes: Sequence[Wish], chosen: Sequence[Turns]) -> None:
        """Counts what was decided."""
        counters = self.counters.of(self._method)
        off = [wish.request_id for wish, turns in zip(wishes, chosen, strict=True) if not turns]
        counters.switched_off += sum([request_id in self.latest for request_id in off])
        # There are few different ones.
        for turns, num_requests in Counter(chosen).items():
            counters.count_chosen(longest(turns), num_requests)
            if len(self._proposers) > 1:
                for place, length in turns:
                    self.counters.of(self._proposers[place].method).count_chosen(length, num_requests)

    def _limits(self, request: Request) -> tuple[int, ...]:
        """Most draft tokens after the step, per proposer: another token comes first, and after the drafts one more."""
        params = request.sampling_params
        wanted = read_options(params.extra_args) if params is not None else RequestOptions(most=0)
        most = self._most if wanted.most is None else min(wanted.most, self._most)
        room, depth = self._max_model_len - request.num_tokens - 2, request.max_tokens - request.num_output_tokens - 2
        if wanted.method is None and self._most == most and most <= room and most <= depth:
            return self._usual
        most = min(most, room)
        if most <= 0 or depth <= 0:
            return self._nothing
        # Of a tree more tokens may be verified than may follow each other.
        return tuple(
            0 if wanted.method not in (None, proposer.method) else most if proposer.drafts_trees else min(most, depth)
            for proposer in self._proposers
        )

    def _gaps(self, request: Request, num_cached: int, kv_place: int) -> tuple[int, ...]:
        # The proposer's part of the prefix cache comes along with the target's.
        seen = self._seen.setdefault(request.request_id, num_cached)
        gaps = [0] * len(self._proposers)
        gaps[kv_place] = max(request.num_tokens - seen, 0)
        return tuple(gaps)

    def started(self) -> None:
        """A step begins to be planned: the one before is over, if it was still being measured."""
        now = time.perf_counter()
        self._finish(now)
        self._started = now

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """A step verified `drafted` draft tokens of a request that it sampled, and kept `accepted`; 0 is none."""
        turns, source = self._waiting.pop(request_id, ((), None))
        self.control.verified(request_id, turns, source, drafted, accepted)
        step = self._planned[0]
        step.sampled.add(request_id)
        step.num_output += accepted + 1

    def source(self, request_id: str) -> int:
        """Who drafted what waits to be verified for a request; the first proposer if that is not known."""
        _, source = self._waiting.get(request_id, ((), None))
        return source or 0

    def updated(
        self,
        requests: Mapping[str, Request],
        counted: CountersByMethod,
        sources: Mapping[str, int],
        *,
        is_busy: bool,
    ) -> None:
        """The outcome of the earliest of the planned steps is known.

        Args:
            requests: those that live on.
            counted: what the worker counted in the step.
            sources: who drafted, of requests that were drafted for.
            is_busy: whether another step follows at once.
        """
        step = self._ended = self._planned.popleft()
        came: list[list[int]] = [[] for _ in self._proposers]
        caught_up = 0
        for request_id, turns in step.turns.items():
            source, is_sampled = sources.get(request_id), request_id in step.sampled
            # Of a text that is not through, the first proposer computes what there is, if it keeps KV.
            for place, length in asked(turns, source) if is_sampled else turns[:1]:
                if is_sampled:
                    came[place].append(length)
                if place == self._kv_place:
                    caught_up += step.gaps[request_id]
                    if request_id in requests:
                        self._seen[request_id] = requests[request_id].num_tokens
            if is_sampled and request_id in requests:
                self._waiting[request_id] = (turns, source)
        drafting = []
        for place, proposer in enumerate(self._proposers):
            did = counted.of(proposer.method)
            tokens = caught_up if place == self._kv_place else 0
            drafting.append(Drafting(max(came[place], default=0), did.draft_tokens, tokens, did.proposer_seconds))
        step.drafting = tuple(drafting)
        if not is_busy:
            self._finish(time.perf_counter())

    def forget(self, request_id: str) -> None:
        """A request ended."""
        self._waiting.pop(request_id, None)
        self._seen.pop(request_id, None)
        self.control.forget(request_id)

    def _finish(self, now: float) -> None:
        started, self._started = self._started, None
        step, self._ended = self._ended, None
        if started is None or step is None or not step.num_tokens:
            return
        self._compare(step, now - started)
        self.control.measured(
            Measured(
                num_tokens=step.num_tokens,
                num_requests=step.num_requests,
                context=step.context,
                seconds=now - started,
                drafting=step.drafting,
                has_drafts=step.has_drafts,
                forecast=step.forecast,
            )
        )

    def _compare(self, step: _Step, seconds: float) -> None:
        forecast, counters = step.forecast, self.counters.of(self._method)
        if forecast is None:
            return
        counters.predicted_seconds += forecast.seconds
        counters.measured_seconds += seconds
        seconds_per_token = forecast.plain_seconds / forecast.plain_tokens
        counters.expected_saved_seconds += forecast.tokens * seconds_per_token - forecast.seconds
        counters.realised_saved_seconds += step.num_output * seconds_per_token - seconds
        for proposer, rates in zip(self._proposers, forecast.acceptance, strict=True):
            self.counters.of(proposer.method).acceptance = list(rates)

    def take_counters(self) -> CountersByMethod:
        """What was counted since the last call."""
        counters, self.counters = self.counters, CountersByMethod()
        return counters


def explain(wishes: Sequence[Wish], chosen: Sequence[Turns], forecast: Forecast | None, methods: Sequence[str]) -> str:
    """One line on one decision: of several proposers those that have a turn, in order."""

    def named(turns: Turns) -> str:
        if len(methods) == 1 or not turns:
            return str(longest(turns))
        return ">".join(f"{methods[place]}({length})" for place, length in turns)

    lengths = " ".join(f"{wish.request_id}:{named(turns)}" for wish, turns in zip(wishes, chosen, strict=True))
    if forecast is None:
        return f"draft lengths {lengths}"
    rates = ", ".join(" ".join(f"{rate:.2f}" for rate in of_proposer) for of_proposer in forecast.acceptance)
    text = (
        f"draft lengths {lengths}; expected {forecast.tokens:.2f} tokens in {forecast.seconds * 1e3:.2f} ms, without "
        f"{forecast.plain_tokens} in {forecast.plain_seconds * 1e3:.2f} ms: {forecast.gain:.2f} times; "
        f"acceptance {rates}"
    )
    return f"{text}; to learn about another {forecast.tried}" if forecast.tried else text
