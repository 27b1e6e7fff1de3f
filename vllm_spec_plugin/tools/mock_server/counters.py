"""The Prometheus metrics that a load test reads before and after, under vLLM's names."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

# Tokens that "the KV cache" holds; gives vllm:kv_cache_usage_perc a scale.
KV_TOKENS = 65536


class MockCounters:
    """Counters and gauges of one server, with vLLM's labels.

    Tokens count when they are delivered, also those of a response that fails later; a prompt counts with its first
    token. Nobody ever waits: every request is run at once.
    """

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        labels = {"model_name": model, "engine": "0"}

        def counter(name: str, meaning: str) -> Counter:
            return Counter(f"vllm:{name}", meaning, list(labels), registry=self.registry).labels(**labels)

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(f"vllm:{name}", meaning, list(labels), registry=self.registry).labels(**labels)

        self._prompt_tokens = counter("prompt_tokens", "Number of prefill tokens processed.")
        self._generation_tokens = counter("generation_tokens", "Number of generation tokens processed.")
        self._drafts = counter("spec_decode_num_drafts", "Number of spec decoding drafts.")
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Number of draft tokens.")
        self._accepted_tokens = counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.")
        self._running = gauge("num_requests_running", "Number of requests in model execution batches.")
        gauge("num_requests_waiting", "Number of requests waiting to be processed.").set(0)
        self._kv_usage = gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        success = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            [*labels, "finished_reason"],
            registry=self.registry,
        )
        self._success = {reason: success.labels(**labels, finished_reason=reason) for reason in ("stop", "length")}
        self._kv_tokens = 0

    def begin(self, num_prompt_tokens: int) -> None:
        """A request runs."""
        self._running.inc()
        self._hold(num_prompt_tokens)

    def step(self, num_prompt_tokens: int, num_tokens: int, num_drafts: int) -> None:
        """A step delivered tokens; the first step of a request also computed its prompt."""
        self._prompt_tokens.inc(num_prompt_tokens)
        self._generation_tokens.inc(num_tokens)
        if num_drafts:
            self._drafts.inc()
            self._draft_tokens.inc(num_drafts)
            self._accepted_tokens.inc(num_tokens - 1)
        self._hold(num_tokens)

    def end(self, num_tokens: int, finish_reason: str | None) -> None:
        """A request is over.

        Args:
            num_tokens: of its prompt and output, which leave the cache.
            finish_reason: None if it failed, or its client went away.
        """
        self._running.dec()
        self._hold(-num_tokens)
        if finish_reason is not None:
            self._success[finish_reason].inc()

    def _hold(self, num_tokens: int) -> None:
        self._kv_tokens += num_tokens
        self._kv_usage.set(min(self._kv_tokens / KV_TOKENS, 1.0))

    def exposition(self) -> bytes:
        """All of them in Prometheus's text format."""
        return generate_latest(self.registry)
