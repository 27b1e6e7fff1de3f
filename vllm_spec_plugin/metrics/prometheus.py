"""The counters as Prometheus metrics, in the process that answers GET /metrics."""

import functools
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter

from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.proposers.guard import ERROR_REASONS


class Exporter:
    """Adds step counters to Prometheus counters under `vllm_spec_plugin:`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics in `registry`."""

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"vllm_spec_plugin:{name}", documentation, labels, registry=registry)

        self._drafts = counter("drafts", "Drafts with at least one token.", "method")
        self._draft_tokens = counter("draft_tokens", "Tokens drafted.", "method")
        self._errors = counter("proposer_errors", "Drafts lost to a fault in the proposer.", "method", "reason")
        self._proposer_seconds = counter("proposer_seconds", "Time spent proposing drafts.", "method")
        self._verification_seconds = counter("verification_seconds", "Time spent in the scorer.")
        self._blocks_reserved = counter("kv_blocks_reserved", "KV blocks given out for tokens to be drafted.")
        self._blocks_rolled_back = counter("kv_blocks_rolled_back", "KV blocks taken back from drafts.")
        self._cut_for_memory = counter("drafts_cut_for_memory", "Draft tokens lost to a lack of KV blocks.", "method")

    def add(self, payload: dict[str, Any]) -> None:
        """Adds `StepCounters.to_payload()`."""
        step = StepCounters.from_payload(payload)
        self._drafts.labels(step.method).inc(step.drafts)
        self._draft_tokens.labels(step.method).inc(step.draft_tokens)
        self._proposer_seconds.labels(step.method).inc(step.proposer_seconds)
        self._verification_seconds.inc(step.verification_seconds)
        self._blocks_reserved.inc(step.kv_blocks_reserved)
        self._blocks_rolled_back.inc(step.kv_blocks_rolled_back)
        self._cut_for_memory.labels(step.method).inc(step.drafts_cut_for_memory)
        for reason in ERROR_REASONS:
            self._errors.labels(step.method, reason).inc(step.proposer_errors.get(reason, 0))


@functools.cache
def exporter() -> Exporter:
    """The process's exporter, on the registry that vLLM serves."""
    return Exporter(REGISTRY)
