"""Exports the counters as Prometheus metrics, in the process that serves GET /metrics."""

import functools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from vllm_spec_plugin.metrics.counters import KINDS, PROPOSER_ERRORS, WITHOUT_DRAFTS, StepCounters
from vllm_spec_plugin.metrics.drift import AcceptanceDrift

# As on vLLM's own metrics, and before all others.
ENGINE_LABELS = ("model_name", "engine")
INFO_LABELS = ("version", "methods", "policy", "tokens", "exact", "lenience")
_RATES = tuple(i / 10 for i in range(11))
_DRAFT_LENGTHS = (*range(9), 10, 12, 16, 24, 32, 48, 64)
_LENGTHS = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 12, 16, 32)


class _CountedHistogram(Histogram):
    """A histogram to which equal values are added at once: a busy server has hundreds of them per step."""

    def observe_many(self, amount: float, count: int) -> None:
        self._sum.inc(amount * count)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(count)


class Exporter:
    """Adds step counters to Prometheus metrics with the prefix `vllm_spec_plugin:`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics in `registry`."""

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"vllm_spec_plugin:{name}", documentation, (*ENGINE_LABELS, *labels), registry=registry)

        self._drafts = counter("drafts", "Drafts with at least one token.", "method")
        self._draft_tokens = counter("draft_tokens", "Tokens drafted.", "method")
        self._errors = counter("proposer_errors", "Drafts discarded because a proposer failed.", "method", "reason")
        self._proposer_seconds = counter("proposer_seconds", "Time spent proposing drafts.", "method")
        self._verification_seconds = counter("verification_seconds", "Seconds spent verifying draft tokens.")
        self._tree_seconds = counter("tree_seconds", "Time spent laying out trees and copying KV blocks for them.")
        self._blocks_reserved = counter("kv_blocks_reserved", "KV blocks reserved for draft tokens.")
        self._blocks_rolled_back = counter("kv_blocks_rolled_back", "KV blocks returned after drafting.")
        self._verified = counter("verified_tokens", "Draft tokens verified, by position.", "method", "position")
        self._accepted = counter("accepted_tokens", "Draft tokens accepted, by position.", "method", "position")
        of_kind = "Draft tokens from grammars {}, by kind."
        self._verified_kinds = counter("verified_tokens_of_kind", of_kind.format("verified"), "method", "kind")
        self._accepted_kinds = counter("accepted_tokens_of_kind", of_kind.format("accepted"), "method", "kind")

        # The mode says how the gauges of several API servers, one per replica, are combined.
        def gauge(name: str, documentation: str, *labels: str, mode: Literal["sum", "mostrecent"]) -> Gauge:
            name = f"vllm_spec_plugin:{name}"
            labels = (*ENGINE_LABELS, *labels)
            return Gauge(name, documentation, labels, registry=registry, multiprocess_mode=mode)

        def histogram(name: str, documentation: str, buckets: tuple[float, ...]) -> _CountedHistogram:
            name = f"vllm_spec_plugin:{name}"
            labels = (*ENGINE_LABELS, "method")
            return _CountedHistogram(name, documentation, labels, buckets=buckets, registry=registry)

        info = "What is served; always 1."
        self._info = gauge("info", info, *INFO_LABELS, mode="mostrecent")
        rate, length = "Accepted / drafted tokens of each ended request.", "1 + accepted / steps of each ended request."
        self._rates = histogram("request_acceptance_rate", rate, _RATES)
        self._lengths = histogram("request_acceptance_length", length, _LENGTHS)
        drift = "Acceptance rate of the last 64 ended requests over the long-run mean, in standard errors."
        self._drift = gauge("acceptance_drift", drift, "method", mode="mostrecent")
        self._drifts: dict[tuple[str, ...], AcceptanceDrift] = defaultdict(AcceptanceDrift)
        self._chosen = histogram("draft_length", "Tokens to draft per request and step.", _DRAFT_LENGTHS)
        without = "Requests served without drafts, as drafts could change their output."
        self._without_drafts = counter("requests_without_drafts", without, "reason")
        salt = "Requests without a cache_salt whose text is shared with all others without one."
        self._without_salt = counter("requests_without_salt", salt)
        lost = "Requests that a head can no longer draft for: hidden states of their text are missing."
        self._lost = counter("requests_lost", lost, "method")
        passes = "Forward passes of vLLM's drafter, the first one of a step also where nobody drafts."
        self._passes = counter("drafter_passes", passes, "method")
        self._rests = counter("drafter_rests", "Steps in which vLLM's drafter did not run.", "method")
        stale = "Requests with a new gap in the drafter's KV cache, left by steps that skipped vLLM's drafter."
        self._stale = counter("stale_requests", stale, "method")
        caught_up = "Tokens that vLLM's draft model computed because it had rested."
        self._caught_up = counter("caught_up_tokens", caught_up, "method")
        self._switched_off = counter("switched_off", "Switches of a request's drafts to off.", "method")
        predicted, measured = "Expected time of steps with a forecast.", "Measured time of the same steps."
        self._predicted = counter("predicted_step_seconds", predicted, "method")
        self._measured = counter("measured_step_seconds", measured, "method")
        # A saving below 0 is a loss, which a counter could not show.
        saved = "Time that drafting {} in steps with a forecast, over none."
        self._expected_saved = gauge(
            "expected_saved_seconds", saved.format("was expected to save"), "method", mode="sum"
        )
        self._realised_saved = gauge("realised_saved_seconds", saved.format("saved"), "method", mode="sum")
        acceptance = "Estimated probability that a draft token is accepted if all before it are, by position."
        self._acceptance = gauge("estimated_acceptance", acceptance, "method", "position", mode="mostrecent")
        limit = "Maximum draft tokens per request and step, by plugin.yaml's switch; 0 is off."
        self._max_draft_tokens = gauge("max_draft_tokens", limit, mode="mostrecent")
        self._cut_for_memory = counter("drafts_cut_for_memory", "Draft tokens lost to a lack of KV blocks.", "method")

    def start(
        self, summary: Mapping[str, str], methods: Iterable[str], max_draft_tokens: int, model_name: str, engine: str
    ) -> None:
        """Shows an engine's info and its methods' counters, from zero.

        Args:
            summary: what is served, see `PluginConfig.summary`.
            methods: the proposers' methods.
            max_draft_tokens: see `PluginConfig`.
            model_name: vLLM's label of that name.
            engine: as well.
        """
        self._info.labels(model_name, engine, *(summary[key] for key in INFO_LABELS)).set(1)
        self._max_draft_tokens.labels(model_name, engine).set(max_draft_tokens)
        self.add([StepCounters(method).to_payload() for method in methods], model_name, engine)

    def add(self, payload: list[dict[str, Any]], model_name: str, engine: str) -> None:
        """Adds an engine's `CountersByMethod.to_payload()`; see `start`."""
        for step in payload:
            self._add(StepCounters.from_payload(step), (model_name, engine))

    def _add(self, step: StepCounters, of: tuple[str, str]) -> None:
        self._drafts.labels(*of, step.method).inc(step.drafts)
        self._draft_tokens.labels(*of, step.method).inc(step.draft_tokens)
        self._proposer_seconds.labels(*of, step.method).inc(step.proposer_seconds)
        self._verification_seconds.labels(*of).inc(step.verification_seconds)
        self._tree_seconds.labels(*of).inc(step.tree_seconds)
        self._blocks_reserved.labels(*of).inc(step.kv_blocks_reserved)
        self._blocks_rolled_back.labels(*of).inc(step.kv_blocks_rolled_back)
        self._cut_for_memory.labels(*of, step.method).inc(step.drafts_cut_for_memory)
        for position, count in enumerate(step.verified_per_position):
            self._verified.labels(*of, step.method, position).inc(count)
        for position, count in enumerate(step.accepted_per_position):
            self._accepted.labels(*of, step.method, position).inc(count)
        for kind, verified, accepted in zip(KINDS, step.verified_by_kind, step.accepted_by_kind, strict=False):
            self._verified_kinds.labels(*of, step.method, kind).inc(verified)
            self._accepted_kinds.labels(*of, step.method, kind).inc(accepted)
        for rate, length in step.ended:
            self._rates.labels(*of, step.method).observe(rate)
            self._lengths.labels(*of, step.method).observe(length)
            self._drifts[*of, step.method].ended(rate)
        if step.ended and (sigmas := self._drifts[*of, step.method].sigmas) is not None:
            self._drift.labels(*of, step.method).set(sigmas)
        chosen = self._chosen.labels(*of, step.method)
        for length, count in enumerate(step.chosen_lengths):
            chosen.observe_many(length, count)
        for reason in WITHOUT_DRAFTS:
            self._without_drafts.labels(*of, reason).inc(step.without_drafts.get(reason, 0))
        self._without_salt.labels(*of).inc(step.requests_without_salt)
        self._lost.labels(*of, step.method).inc(step.requests_lost)
        self._passes.labels(*of, step.method).inc(step.drafter_passes)
        self._rests.labels(*of, step.method).inc(step.drafter_rests)
        self._stale.labels(*of, step.method).inc(step.stale_requests)
        self._caught_up.labels(*of, step.method).inc(step.caught_up_tokens)
        self._switched_off.labels(*of, step.method).inc(step.switched_off)
        self._predicted.labels(*of, step.method).inc(step.predicted_seconds)
        self._measured.labels(*of, step.method).inc(step.measured_seconds)
        self._expected_saved.labels(*of, step.method).inc(step.expected_saved_seconds)
        self._realised_saved.labels(*of, step.method).inc(step.realised_saved_seconds)
        for position, rate in enumerate(step.acceptance):
            self._acceptance.labels(*of, step.method, position).set(rate)
        for limit in step.max_draft_tokens:
            self._max_draft_tokens.labels(*of).set(limit)
        for reason in PROPOSER_ERRORS:
            self._errors.labels(*of, step.method, reason).inc(step.proposer_errors.get(reason, 0))


@functools.cache
def exporter() -> Exporter:
    """Returns the process's exporter, on the registry that vLLM serves."""
    return Exporter(REGISTRY)
