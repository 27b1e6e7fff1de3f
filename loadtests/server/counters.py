"""What a server counted meanwhile, by two readings of its `/metrics`."""

from dataclasses import dataclass

from vllm_spec_plugin.tools.server_metrics import ServerMetrics

_PROMPT, _OUTPUT = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_DRAFTS, _DRAFTED, _ACCEPTED = (
    f"vllm:spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
_BLOCKS, _RUNNING, _WAITING = "vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"


@dataclass(frozen=True)
class ServerCounts:
    """What was counted between two readings. None: the server does not count it.

    Attributes:
        prompt_tokens: that came in.
        output_tokens: that were made; also for clients that went away.
        drafts: that were verified.
        draft_tokens: theirs.
        accepted_tokens: of these.
        kv_usage: share of the KV blocks in use at the second reading.
        running: requests at the second reading.
        waiting: requests at the second reading.
    """

    prompt_tokens: float | None
    output_tokens: float | None
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    kv_usage: float | None
    running: float | None
    waiting: float | None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None without drafts."""
        return (
            self.accepted_tokens / self.draft_tokens if self.draft_tokens and self.accepted_tokens is not None else None
        )

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts, the tokens that a step with a draft brought; None without drafts."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts and self.accepted_tokens is not None else None


def counts(before: ServerMetrics, after: ServerMetrics) -> ServerCounts:
    """What a server counted from one reading to the next."""
    grown = (after.increase(before, name) for name in (_PROMPT, _OUTPUT, _DRAFTS, _DRAFTED, _ACCEPTED))
    return ServerCounts(*grown, *map(after.totals.get, (_BLOCKS, _RUNNING, _WAITING)))
