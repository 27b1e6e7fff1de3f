"""Decisions of a draft-length policy, counted and explained."""

from collections.abc import Collection, Sequence

from vllm_spec_plugin.draft_plan import DraftPlan, longest
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.control import DraftRequest, StepForecast


class DecisionCounters:
    """Counts a policy's decisions, its forecasts, and their outcomes."""

    def __init__(self, counters: CountersByMethod, method: str, methods: Sequence[str]) -> None:
        """Adds to counters.

        Args:
            counters: the scheduler's.
            method: the configured proposer.
            methods: its members; of a single proposer itself.
        """
        self._counters = counters
        self._method = method
        self._methods = methods

    def chosen(self, chosen: Sequence[DraftPlan]) -> None:
        """Counts the draft plans of a step's requests."""
        counters = self._counters.of(self._method)
        # There are few different ones.
        for draft_plan in set(chosen):
            num_requests = chosen.count(draft_plan)
            counters.count_chosen(longest(draft_plan), num_requests)
            if len(self._methods) > 1:
                for i, length in draft_plan:
                    self._counters.of(self._methods[i]).count_chosen(length, num_requests)

    def not_chosen(self, num_requests: int) -> None:
        """Counts requests of a step that is planned without drafts whatever its requests are."""
        self._counters.of(self._method).count_chosen(0, num_requests)

    def switched_off(self, request_ids: Collection[str], latest: Collection[str]) -> None:
        """Counts requests without a draft plan that had one in the step before."""
        num_requests = sum([request_id in latest for request_id in request_ids])
        if num_requests:
            self._counters.of(self._method).switched_off += num_requests

    def capped(self, max_tokens: int) -> None:
        """Sets the maximum draft tokens of all requests, by the operator's switch."""
        self._counters.of(self._method).max_draft_tokens = [max_tokens]

    def without_drafts(self, reason: str) -> None:
        """Counts a request that is served without drafts."""
        self._counters.of(self._method).count_without_drafts(reason)

    def compare(self, forecast: StepForecast, num_output: int, seconds: float) -> None:
        """Counts a step's forecast and measured time, and its expected and realised savings."""
        counters = self._counters.of(self._method)
        counters.predicted_seconds += forecast.seconds
        counters.measured_seconds += seconds
        counters.expected_saved_seconds += forecast.saved(forecast.tokens, forecast.seconds)
        counters.realised_saved_seconds += forecast.saved(num_output, seconds)

    def estimated(self, acceptance: Sequence[Sequence[float]]) -> None:
        """Sets the policy's estimates of acceptance, per proposer and position; empty if it has none."""
        for method, rates in zip(self._methods, acceptance, strict=False):
            self._counters.of(method).acceptance = list(rates)


def explain(
    requests: Sequence[DraftRequest],
    chosen: Sequence[DraftPlan],
    forecast: StepForecast | None,
    acceptance: Sequence[Sequence[float]],
    methods: Sequence[str],
) -> str:
    """Describes one decision in a line; in a cascade with the planned proposers, in order."""

    def named(draft_plan: DraftPlan) -> str:
        if len(methods) == 1 or not draft_plan:
            return str(longest(draft_plan))
        return ">".join(f"{methods[i]}({length})" for i, length in draft_plan)

    lengths = " ".join(
        f"{request.request_id}:{named(draft_plan)}" for request, draft_plan in zip(requests, chosen, strict=True)
    )
    if forecast is None:
        return f"draft lengths {lengths}"
    rates = ", ".join(" ".join(f"{rate:.2f}" for rate in of_proposer) for of_proposer in acceptance)
    return (
        f"draft lengths {lengths}; expected {forecast.tokens:.2f} tokens in {forecast.seconds * 1e3:.2f} ms, without "
        f"{forecast.plain_tokens} in {forecast.plain_seconds * 1e3:.2f} ms: {forecast.gain:.2f} times; "
        f"acceptance {rates}"
    )
