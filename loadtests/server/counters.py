"""What a server counted meanwhile, by two readings of its `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_PROMPT, _OUTPUT = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_DRAFTS, _DRAFTED, _ACCEPTED = (
    f"vllm:spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
_BLOCKS, _RUNNING, _WAITING = "vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"


class ExpositionError(ValueError):
    """What `/metrics` answered is not Prometheus' text format; str() says what is wrong."""


@dataclass(frozen=True)
class Reading:
    """Of all engines and models of a server together.

    Attributes:
        values: by sample name, labels added up.
    """

    values: Mapping[str, float]

    @classmethod
    def of(cls, text: str) -> "Reading":
        """Reads what `/metrics` answered.

        Raises:
            ExpositionError: it is something else.
        """
        values: dict[str, float] = {}
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
        except (ValueError, KeyError, IndexError) as error:
            raise ExpositionError(f"/metrics does not answer in Prometheus' text format: {error}") from None
        return cls(values)


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


def counts(before: Reading, after: Reading) -> ServerCounts:
    """What a server counted from one reading to the next.

    A counter that is lower than before began anew: the server was restarted, and what it has now is what is known.
    """

    def grown(name: str) -> float | None:
        now = after.values.get(name)
        if now is None:
            return None
        was = before.values.get(name, 0.0)
        return now - was if now >= was else now

    def held(name: str) -> float | None:
        return after.values.get(name)

    return ServerCounts(
        *map(grown, (_PROMPT, _OUTPUT, _DRAFTS, _DRAFTED, _ACCEPTED)), *map(held, (_BLOCKS, _RUNNING, _WAITING))
    )
