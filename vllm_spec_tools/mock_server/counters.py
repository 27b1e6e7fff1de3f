"""The Prometheus metrics of the mock server: vLLM's names, and the plugin's own by its exporter."""

from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter

# Tokens that "the KV cache" holds; gives vllm:kv_cache_usage_perc a scale.
KV_TOKENS = 65536
METHOD = "ngram"
_BLOCK_TOKENS = 16
# Shares of a step's time that the invented proposer and scorer take.
_PROPOSER_SHARE, _VERIFICATION_SHARE = 0.04, 0.02
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_REASONS = ("stop", "length", "abort", "error")


class RequestCounters:
    """Adds one response to the counters of its server. Created when the request arrives, closed by `end`."""

    def __init__(self, server: "MockCounters", num_prompt_tokens: int, arrived: float) -> None:
        self._server, self._num_prompt, self._arrived = server, num_prompt_tokens, arrived
        self._first = self._last = 0.0
        self._is_running = False
        self._num_tokens = self._num_held = self._num_steps = self._drafted = self._accepted = 0
        server.waiting.inc()

    def run(self, now: float) -> None:
        """Moves the request from the waiting to the running ones."""
        self._is_running = True
        self._server.waiting.dec()
        self._server.running.inc()
        self._server.queue_seconds.observe(now - self._arrived)
        self._hold(self._num_prompt)

    def step(self, now: float, num_tokens: int, num_drafts: int) -> None:
        """Counts a step of the engine: its output tokens, its drafts, and with the first one the prompt."""
        server = self._server
        if not self._num_tokens:
            server.prompt_tokens.inc(self._num_prompt)
            server.ttft.observe(now - self._arrived)
            self._first = now
        else:
            seconds = now - self._last
            server.inter_token.observe(seconds)
            self._num_steps += 1
            self._count_drafts(seconds, num_tokens, num_drafts)
        server.generation_tokens.inc(num_tokens)
        self._last = now
        self._num_tokens += num_tokens
        self._hold(num_tokens)

    def _count_drafts(self, seconds: float, num_tokens: int, num_drafts: int) -> None:
        server, own = self._server, self._server.own.of(METHOD)
        own.count_chosen(num_drafts)
        if not num_drafts:
            return
        accepted = num_tokens - 1
        server.drafts.inc()
        server.draft_tokens.inc(num_drafts)
        server.accepted_tokens.inc(accepted)
        blocks = -(-num_drafts // _BLOCK_TOKENS)
        step = StepCounters(METHOD, drafts=1, draft_tokens=num_drafts, kv_blocks_reserved=blocks)
        step.count_verified(num_drafts, accepted)
        step.kv_blocks_rolled_back = blocks if not accepted else 0
        step.proposer_seconds, step.verification_seconds = seconds * _PROPOSER_SHARE, seconds * _VERIFICATION_SHARE
        step.predicted_seconds = step.measured_seconds = seconds
        # One step instead of one per output token.
        step.expected_saved_seconds = step.realised_saved_seconds = seconds * accepted
        step.acceptance = [0.5] * num_drafts
        own.add(step)
        self._drafted += num_drafts
        self._accepted += accepted

    def end(self, now: float, finish_reason: str | None) -> None:
        """Counts the end of the request; `finish_reason` is None if it failed or its client disconnected."""
        server = self._server
        (server.running if self._is_running else server.waiting).dec()
        self._hold(-self._num_held)
        if self._drafted:
            length = 1 + self._accepted / self._num_steps
            server.own.of(METHOD).ended.append((self._accepted / self._drafted, length))
        if finish_reason is None:
            return
        server.success[finish_reason].inc()
        server.e2e.observe(now - self._arrived)
        if self._num_tokens > 1:
            server.time_per_token.observe((self._last - self._first) / (self._num_tokens - 1))

    def _hold(self, num_tokens: int) -> None:
        self._num_held += num_tokens
        self._server.hold(num_tokens)


class MockCounters:
    """The metrics of one server.

    Tokens count when they are delivered, also those of a response that fails later; a prompt counts with its first
    output token. The plugin's metrics are those of n-grams that save as many steps as they have tokens accepted.
    """

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        labels = {"model_name": model, "engine": "0"}

        def metric(kind: Any, name: str, text: str, **more: Any) -> Any:
            return kind(f"vllm:{name}", text, list(labels), registry=self.registry, **more).labels(**labels)

        counter, gauge = partial(metric, Counter), partial(metric, Gauge)

        def seconds(name: str, text: str) -> Any:
            return metric(Histogram, f"{name}_seconds", text, buckets=_SECONDS)

        self.prompt_tokens = counter("prompt_tokens", "Number of prefill tokens processed.")
        self.generation_tokens = counter("generation_tokens", "Number of generation tokens processed.")
        self.drafts = counter("spec_decode_num_drafts", "Number of spec decoding drafts.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Number of draft tokens.")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.")
        self.running = gauge("num_requests_running", "Number of requests in model execution batches.")
        self.waiting = gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._kv_usage = gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self.ttft = seconds("time_to_first_token", "Histogram of time to first token in seconds.")
        self.inter_token = seconds("inter_token_latency", "Histogram of inter-token latency in seconds.")
        self.time_per_token = seconds("request_time_per_output_token", "Histogram of time per output token.")
        self.e2e = seconds("e2e_request_latency", "Histogram of e2e request latency in seconds.")
        self.queue_seconds = seconds("request_queue_time", "Histogram of time spent in WAITING phase for request.")
        # A mock preempts nothing and caches no prefix: these stay 0.
        counter("num_preemptions", "Cumulative number of preemption from the engine.")
        counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.")
        counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.")
        success = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            [*labels, "finished_reason"],
            registry=self.registry,
        )
        self.success = {reason: success.labels(**labels, finished_reason=reason) for reason in _REASONS}
        self._http = Counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            ["handler", "method", "status"],
            registry=self.registry,
        )
        self._exporter = Exporter(self.registry)
        self._labels = labels
        self._exporter.start(parse_config({"proposer": {"method": METHOD}}, "").summary, [METHOD], **labels)
        self.own = CountersByMethod()
        self._kv_tokens = 0

    def arrive(self, num_prompt_tokens: int, now: float) -> RequestCounters:
        """Counts a request that waits to be run."""
        return RequestCounters(self, num_prompt_tokens, now)

    def http(self, handler: str, status: int) -> None:
        """Counts a response's HTTP status by its class, as vLLM's web server does."""
        self._http.labels(handler, "POST", f"{status // 100}xx").inc()

    def hold(self, num_tokens: int) -> None:
        """Changes the tokens in the KV cache by a number that may be negative."""
        self._kv_tokens += num_tokens
        self._kv_usage.set(min(self._kv_tokens / KV_TOKENS, 1.0))

    def exposition(self) -> bytes:
        """Formats all metrics as text for Prometheus."""
        # Added up until then: the exporter takes more time than a step of a fast mock.
        self._exporter.add(self.own.take_payload(), **self._labels)
        return generate_latest(self.registry)
