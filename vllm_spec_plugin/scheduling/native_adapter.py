"""Connects vLLM's own drafters to the draft-length policy: outcomes and times as the scheduler sees them."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.resting import DrafterAfterRest
from vllm_spec_plugin.compat.scheduler import SchedulerOutput
from vllm_spec_plugin.metrics.counters import GRAMMAR
from vllm_spec_plugin.policy.control import Drafting, Off
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.eligibility import is_cut_by_value
from vllm_spec_plugin.scheduling.step_ledger import Step
from vllm_spec_plugin.turns import Turns


class NativeAdapter(DraftLengthAdapter):
    """Plans draft lengths for one of vLLM's drafters, and reports outcomes, which may come steps later.

    Attributes:
        native: index of the drafter in the configuration, the last one.

    A step's time ends with its outcome, and begins with the outcome before or, if later, its own planning. Drafting is
    part of it: the policy learns its share.
    """

    def __init__(
        self,
        *args: Any,
        is_async: bool,
        bounds_min_tokens: bool,
        samples_drafts: bool = False,
        after_rest: DrafterAfterRest | None = None,
        **kwargs: Any,
    ) -> None:
        """See `DraftLengthAdapter`.

        Args:
            is_async: whether steps are planned before the last outcome is known. Then a step's outcome arrives before
                its drafting ends, which is part of the next step's time.
            bounds_min_tokens: whether no draft may reach the `min_tokens` of its request.
            samples_drafts: whether drafts of requests that sample are sampled.
            after_rest: what the drafter does after it has rested; None if it runs in every step.
        """
        super().__init__(*args, **kwargs)
        self._is_async, self._bounds_min_tokens, self._samples_drafts = is_async, bounds_min_tokens, samples_drafts
        self._after_rest = after_rest
        self._drafts_in_one_pass = self._proposers[-1].drafts_in_one_pass
        # Any others draft from texts.
        self.native = len(self._proposers) - 1
        # Requests with `min_tokens`, while they live.
        self._to_bound: dict[str, tuple[Request, int]] = {}

    def add(self, request: Request) -> None:
        """See `DraftLengthAdapter`."""
        super().add(request)
        params = request.sampling_params
        if self._bounds_min_tokens and params and params.min_tokens and self.is_served(request.request_id):
            self._to_bound[request.request_id] = request, params.min_tokens

    def forget(self, request_id: str) -> None:
        """See `DraftLengthAdapter`."""
        super().forget(request_id)
        self._to_bound.pop(request_id, None)

    def _why_without_drafts(self, request: Request) -> str | None:
        if (reason := super()._why_without_drafts(request)) or not self._samples_drafts:
            return reason
        params = request.sampling_params
        assert params is not None, "it would have a reason"
        return GRAMMAR if is_cut_by_value(params.structured_outputs is not None, params.temperature) else None

    def started(self) -> None:
        """Begins a step, whose planning starts."""
        self.ledger.begin(time.perf_counter())

    def plan(
        self, output: SchedulerOutput, running: Sequence[Request], max_step_tokens: Callable[[], int]
    ) -> dict[str, Turns]:
        """See `DraftLengthAdapter`."""
        turns = super().plan(output, running, max_step_tokens)
        if self._to_bound:
            self._bound(output, turns)
        step, before = self.ledger.latest, self.ledger.before
        if step.is_measured:
            step.asked = {name: own for name, own in before.turns.items() if name in output.num_scheduled_tokens}
            step.is_uneven = len(set(output.num_scheduled_tokens.values())) > 1
        step.rests = not self.longest and self._may_rest(output)
        return turns

    def _may_rest(self, output: SchedulerOutput) -> bool:
        """Whether the drafter may rest in a step after which nobody drafts.

        A head never computes what it then lacks. While drafting is off for a short time, it has all prompts at least.
        """
        if self._after_rest is None:
            return False
        if self._after_rest is not DrafterAfterRest.KEEPS_GAP or self.control.is_constant:
            return True
        scheduled = output.num_scheduled_tokens
        num_drafts = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        if self.control.off is Off.SHORT and output.total_num_scheduled_tokens == len(scheduled) + num_drafts:
            return True
        return not any(map(self.may_draft_soon, scheduled))

    @property
    def longest(self) -> int:
        """The longest draft that the latest plan asks the drafter for; 0 without one."""
        return self.ledger.latest.longest(self.native)

    @property
    def rests(self) -> bool:
        """Whether the drafter rests in the latest step."""
        return self.ledger.latest.rests

    def may_draft_soon(self, request_id: str) -> bool:
        """Whether the drafter may draft for a request, and the policy is not off for long."""
        limits = self._limits.get(request_id)
        return limits is not None and limits.usual[self.native] > 0 and self.control.off is not Off.LONG

    def catches_up(self, num_tokens: int, unready: Collection[str]) -> None:
        """Notes what the drafter computes in the latest step before it drafts.

        Args:
            num_tokens: tokens that it computes.
            unready: requests of which more is missing, so that it cannot draft for them yet.
        """
        self.ledger.latest.caught_up = num_tokens
        turns = self.ledger.latest.turns
        for request_id in turns.keys() & set(unready):
            own = tuple(turn for turn in turns.pop(request_id) if turn[0] != self.native)
            if own:
                turns[request_id] = own

    def _bound(self, output: SchedulerOutput, turns: dict[str, Turns]) -> None:
        """Cuts drafts so that even the token after them is below its request's `min_tokens`, until these are there."""
        for request_id in turns.keys() & self._to_bound.keys():
            request, least = self._to_bound[request_id]
            known = request.num_output_tokens
            if known >= least:
                del self._to_bound[request_id]
                continue
            drafts = output.scheduled_spec_decode_tokens.get(request_id, ())
            most = known + (request.num_output_placeholders or 1 + len(drafts))
            room = least - 1 - most
            own = tuple((proposer, min(length, room)) for proposer, length in turns.pop(request_id) if room > 0)
            if own:
                turns[request_id] = own

    def drafted_from_texts(self, sources: Mapping[str, int], drafting: tuple[Drafting, ...]) -> None:
        """Records drafts that were made before the present step is planned, which verifies them.

        Args:
            sources: index of the proposer of each request with a draft from a text.
            drafting: work of each proposer before `native`.
        """
        self.ledger.latest.sources, self.ledger.latest.drafting = sources, drafting

    def outcome(self, step: Step, request_id: str, drafted: int, accepted: int, num_output_tokens: int) -> int:
        """Reports the outcome of a step for a request that had drafts or turns.

        Args:
            step: the step, from `take_step`.
            request_id: the request.
            drafted: draft tokens that were verified.
            accepted: draft tokens that were accepted.
            num_output_tokens: output tokens of the request, those of the step included.

        Returns:
            Index of the drafts' proposer.
        """
        source = step.sources.get(request_id, self.native)
        if step.is_measured:
            step.num_accepted += accepted
            turns = step.asked.get(request_id, ((source, drafted),))
            drafter = source if drafted else None
            self.control.verified(request_id, turns, drafter, drafted, accepted, num_output_tokens)
        return source

    def finished(self, step: Step, num_output: int) -> None:
        """Reports the time of a step whose outcome has come.

        Args:
            step: the step, from `take_step`.
            num_output: output tokens of the step.
        """
        drafted_in = self.ledger.finished if self._is_async else step
        longest = drafted_in.longest(self.native)
        # vLLM's drafters make the first pass also for no drafts.
        passes = 0 if drafted_in.rests else 1 if self._drafts_in_one_pass else max(longest, 1)
        step.drafter_passes = passes + (drafted_in.caught_up > 0)
        if step.is_measured:
            num_drafted = longest * drafted_in.num_requests
            native = Drafting(longest, num_drafted, drafted_in.caught_up, 0.0, is_timed=False)
            step.drafting = (*step.drafting[: self.native], native)
        step.num_output = num_output
        self.ledger.finish(step, time.perf_counter())
        self._measured(step)
