"""Between vLLM's books and the policy of draft lengths: what a step may draft, and what came of it."""

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.request_options import read_options
from vllm_spec_plugin.scheduling.draft_length.control import Batch, DraftLengthControl, Forecast, Measured, Wish

logger = logging.getLogger("vllm.vllm_spec_plugin")


@dataclass
class _Step:
    num_tokens: int
    num_requests: int
    context: int
    lengths: dict[str, int] = field(default_factory=dict)
    caught_up: int = 0
    num_drafted: int = 0
    draft_seconds: float = 0.0
    num_output: int = 0
    # Of the drafts that it verifies.
    forecast: Forecast | None = None


class Steering:
    """Asks the policy how much to draft in each planned step, and tells it how the drafts fared and what steps took.

    All of it happens in the scheduler's process: what the ranks draft is decided once, and sent to them.

    Attributes:
        control: the policy.
        counters: of decisions, since they were last taken.
        latest: of the step planned last, how many tokens are to be drafted for each request that is drafted for.
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
        self.counters = StepCounters(self._method)
        self._most = config.draft_length.tokens
        # Trees are drafted whole or not at all.
        self._unit = self._most if config.proposer.drafts_trees else 1
        self._keeps_kv = config.proposer.keeps_kv
        self._max_model_len = max_model_len
        # Of requests that were drafted for in the latest step that sampled them: how many tokens they were asked for.
        self._asked: dict[str, int] = {}
        # How much of each text the proposer has computed, if it keeps KV.
        self._seen: dict[str, int] = {}
        # Steps that were planned and whose outcome is not known, and the latest one whose outcome is.
        self._planned: deque[_Step] = deque()
        self._ended: _Step | None = None
        self.latest: dict[str, int] = {}
        # Of the latest plan, for the step that verifies its drafts.
        self._forecast: Forecast | None = None
        self._num_wishes = 0
        self._started: float | None = None

    def plan(self, output: Any, running: Sequence[Request], most_tokens: int) -> dict[str, int]:
        """Draft lengths for the end of a step that vLLM has planned.

        Args:
            output: vLLM's plan.
            running: all running requests.
            most_tokens: tokens that the next step has room for.

        Returns:
            Per request that the step computes tokens of and that is to be drafted for: how many tokens, at least 1.
        """
        for request_id in output.preempted_req_ids or ():
            self._seen.pop(request_id, None)
        wishes, limits, context, base_tokens = [], {}, 0, 0
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
            limit = self._limit(request)
            if limit > 0:
                gap = self._gap(request, request.num_computed_tokens - scheduled)
                wishes.append(Wish(request.request_id, -(-limit // self._unit), gap))
                limits[request.request_id] = limit
        step = _Step(output.total_num_scheduled_tokens, len(output.num_scheduled_tokens), context)
        if step.num_requests == self._num_wishes:
            step.forecast = self._forecast
        self._planned.append(step)
        self._forecast, self._num_wishes = None, len(wishes)
        if wishes:
            batch = Batch(base_tokens, len(running), context, max(most_tokens - base_tokens, 0) // self._unit)
            for wish, length in zip(wishes, self.control.plan(wishes, batch), strict=True):
                if length:
                    step.lengths[wish.request_id] = min(length * self._unit, limits[wish.request_id])
                    step.caught_up += wish.gap
            self._forecast = self.control.forecast
            self._note(step, wishes)
        self.latest = step.lengths
        return step.lengths

    def _note(self, step: _Step, wishes: Sequence[Wish]) -> None:
        """Counts what was decided, and says so to those who debug."""
        chosen = [step.lengths.get(wish.request_id, 0) for wish in wishes]
        counts = self.counters.chosen_lengths
        counts += [0] * (max(chosen) + 1 - len(counts))
        for wish, length in zip(wishes, chosen, strict=True):
            counts[length] += 1
            self.counters.switched_off += not length and wish.request_id in self.latest
        if not logger.isEnabledFor(logging.DEBUG):
            return
        logger.debug("%s", explain(wishes, chosen, self._forecast))

    def _limit(self, request: Request) -> int:
        """Most draft tokens after the step: another token comes first, and after the drafts one more."""
        params = request.sampling_params
        if params is None:
            return 0
        wanted = read_options(params.extra_args).most
        most = self._most if wanted is None else min(wanted, self._most)
        room: int = self._max_model_len - request.num_tokens - 2
        depth: int = request.max_tokens - request.num_output_tokens - 2
        # Of a tree more tokens may be verified than may follow each other.
        return min(most, room, depth) if self._unit == 1 or depth < 1 else min(most, room)

    def _gap(self, request: Request, num_cached: int) -> int:
        if not self._keeps_kv:
            return 0
        # The proposer's part of the prefix cache comes along with the target's.
        seen = self._seen.setdefault(request.request_id, num_cached)
        gap: int = max(request.num_tokens - seen, 0)
        return gap

    def started(self) -> None:
        """A step begins to be planned: the one before is over, if it was still being measured."""
        now = time.perf_counter()
        self._finish(now)
        self._started = now

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """A step verified `drafted` draft tokens of a request that it sampled, and kept `accepted`; 0 is none."""
        asked = self._asked.pop(request_id, 0)
        if asked:
            self.control.verified(request_id, asked, min(drafted, asked), min(accepted, asked))
        self.control.advance(request_id, accepted + 1)
        self._planned[0].num_output += accepted + 1

    def updated(self, requests: Mapping[str, Request], drafted: StepCounters | None, *, is_busy: bool) -> None:
        """The outcome of the earliest of the planned steps is known.

        Args:
            requests: those that live on.
            drafted: what the worker counted in the step.
            is_busy: whether another step follows at once.
        """
        step = self._ended = self._planned.popleft()
        if drafted is not None:
            step.num_drafted, step.draft_seconds = drafted.draft_tokens, drafted.proposer_seconds
        for request_id, length in step.lengths.items():
            request = requests.get(request_id)
            if request is not None:
                self._asked[request_id] = length
                self._seen[request_id] = request.num_tokens
        if not is_busy:
            self._finish(time.perf_counter())

    def forget(self, request_id: str) -> None:
        """A request ended."""
        self._asked.pop(request_id, None)
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
                draft_seconds=step.draft_seconds,
                longest=max(step.lengths.values(), default=0),
                num_drafted=step.num_drafted,
                caught_up=step.caught_up,
            )
        )

    def _compare(self, step: _Step, seconds: float) -> None:
        forecast, counters = step.forecast, self.counters
        if forecast is None:
            return
        counters.predicted_seconds += forecast.seconds
        counters.measured_seconds += seconds
        counters.expected_saved_seconds += forecast.tokens * forecast.seconds_per_token - forecast.seconds
        counters.realised_saved_seconds += step.num_output * forecast.seconds_per_token - seconds
        counters.acceptance = list(forecast.acceptance)

    def take_counters(self) -> StepCounters:
        """What was counted since the last call."""
        counters, self.counters = self.counters, StepCounters(self._method)
        return counters


def explain(wishes: Sequence[Wish], chosen: Sequence[int], forecast: Forecast | None) -> str:
    """One line on one decision."""
    lengths = " ".join(f"{wish.request_id}:{length}" for wish, length in zip(wishes, chosen, strict=True))
    if forecast is None:
        return f"draft lengths {lengths}"
    without = forecast.seconds_per_token * len(wishes)
    gain = forecast.tokens / forecast.seconds * forecast.seconds_per_token
    text = (
        f"draft lengths {lengths}; expected {forecast.tokens:.2f} tokens in {forecast.seconds * 1e3:.2f} ms, without "
        f"{len(wishes)} in {without * 1e3:.2f} ms: {gain:.2f} times; acceptance "
        f"{' '.join(f'{rate:.2f}' for rate in forecast.acceptance)}"
    )
    return f"{text}; to learn about another {forecast.tried}" if forecast.tried else text
