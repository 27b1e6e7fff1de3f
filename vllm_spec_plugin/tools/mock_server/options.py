"""How the mock server behaves. Imports nothing heavy."""

from dataclasses import dataclass

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.serving import HOST


@dataclass(frozen=True)
class MockOptions:
    """What is served, and how fast and how reliably.

    Attributes:
        host: to listen on.
        port: to listen on; 0 for one that is free.
        model: the one name that requests may give.
        ttft_ms: milliseconds from a request to its first chunk.
        itl_ms: milliseconds from one chunk to the next, however many tokens are in it: a step of the engine.
        jitter: each wait is drawn from [1 - jitter, 1 + jitter] times its length, evenly. From 0 to 1.
        tokens_per_chunk: mean tokens of a chunk, at least 1; `plan.py` has the rule.
        error_rate: share of requests that fail, from 0 to 1; `plan.py` says which and how.
        seed: of texts, chunk sizes and jitter.
        max_model_len: maximum number of tokens of prompt and output together.
        max_running: maximum number of requests that run at once, others wait; 0 for no limit.
    """

    host: str = HOST
    port: int = 0
    model: str = "mock"
    ttft_ms: float = 50.0
    itl_ms: float = 10.0
    jitter: float = 0.0
    tokens_per_chunk: float = 1.0
    error_rate: float = 0.0
    seed: int = 0
    max_model_len: int = 32768
    max_running: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            UserError: a value is outside of its range.
        """
        # Written so that NaN is refused as well.
        for name, value, is_allowed, allowed in (
            ("port", self.port, 0 <= self.port <= 65535, "0 (any free one) to 65535"),
            ("model", self.model, bool(self.model), "a name"),
            ("ttft_ms", self.ttft_ms, 0 <= self.ttft_ms < float("inf"), "0 or more"),
            ("itl_ms", self.itl_ms, 0 <= self.itl_ms < float("inf"), "0 or more"),
            ("jitter", self.jitter, 0 <= self.jitter <= 1, "0 to 1"),
            ("tokens_per_chunk", self.tokens_per_chunk, 1 <= self.tokens_per_chunk <= 64, "1 to 64"),
            ("error_rate", self.error_rate, 0 <= self.error_rate <= 1, "0 to 1"),
            ("max_running", self.max_running, self.max_running >= 0, "0 (no limit) or more"),
            ("max_model_len", self.max_model_len, self.max_model_len >= 2, "2 or more"),
        ):
            if not is_allowed:
                raise UserError(f"{name} is {value!r}: it must be {allowed}")
