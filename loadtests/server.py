"""The server under test: its model, its `/metrics`, and what it counted during a load test."""

import time
from typing import Any

import requests

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.server_metrics import ExpositionError, ServerMetrics

# Names of counters, and of gauges, by their names in reports.
COUNTERS = {
    "requests": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "proposer_errors": "vllm_spec_plugin:proposer_errors_total",
}
GAUGES = {
    "kv_usage": "vllm:kv_cache_usage_perc",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
}
_TIMEOUT = 10.0
_POLL_SECONDS = 0.2


class ServerNotThereError(UserError):
    """The server does not answer as an OpenAI-compatible one; str() says how."""


class ServerUnderTest:
    """Reads a server's model and metrics."""

    def __init__(self, host: str, api_key: str = "") -> None:
        """Asks for nothing yet.

        Args:
            host: URL without "/v1".
            api_key: empty for none.
        """
        self._host = host.rstrip("/")
        self._session = requests.Session()
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def first_model(self) -> dict[str, Any]:
        """The first model that the server lists, with its `id`.

        Raises:
            ServerNotThereError: it lists none.
        """
        try:
            model: dict[str, Any] = self._get("/v1/models").json()["data"][0]
            return model | {"id": str(model["id"])}
        except (requests.exceptions.RequestException, LookupError, TypeError, ValueError) as error:
            raise ServerNotThereError(
                f"{self._host}/v1/models does not name a model ({error}); is the server up, is --host right?"
            ) from None

    def metrics(self) -> ServerMetrics:
        """One scrape of `/metrics`.

        Raises:
            ServerNotThereError: the server does not answer, or not in Prometheus' text format.
        """
        try:
            return ServerMetrics.parse(self._get("/metrics").text)
        except (requests.exceptions.RequestException, ExpositionError) as error:
            raise ServerNotThereError(f"{self._host}/metrics cannot be read ({error})") from None

    def _get(self, path: str) -> requests.Response:
        response = self._session.get(self._host + path, timeout=_TIMEOUT)
        response.raise_for_status()
        return response

    def idle_metrics(self, within: float = 20.0) -> ServerMetrics:
        """A scrape with no request running or waiting, or the one after `within` seconds. Raises as `metrics`."""
        deadline = time.monotonic() + within
        while True:
            found = self.metrics()
            if is_idle(found) or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_SECONDS)


def is_idle(metrics: ServerMetrics) -> bool:
    """Whether no request runs or waits and no KV block is in use."""
    return all(metrics.totals.get(name) == 0 for name in GAUGES.values())


def counts_between(before: ServerMetrics, after: ServerMetrics) -> dict[str, float | None]:
    """Increase of a server's counters from one scrape to the next, and its gauges at the end. None: not exported.

    `requests` ended without an error; `output_tokens` includes tokens for clients that disconnected; `drafts`,
    `draft_tokens` and `accepted_tokens` are verified ones; `kv_usage` is the share of the KV cache in use.
    `acceptance_length` is 1 + accepted tokens / drafts; both acceptances are None without drafts.
    """
    counts = {field: after.increase(before, name) for field, name in COUNTERS.items()}
    counts |= {field: after.totals.get(name) for field, name in GAUGES.items()}
    drafts, tokens, accepted = (counts[key] or 0 for key in ("drafts", "draft_tokens", "accepted_tokens"))
    counts["acceptance_rate"] = accepted / tokens if tokens else None
    counts["acceptance_length"] = 1 + accepted / drafts if drafts else None
    return counts
