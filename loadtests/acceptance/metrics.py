"""Readings of a server's `/metrics`."""

import time

import httpx

from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

ERRORS = "vllm_spec_plugin:proposer_errors_total"
_HELD = ("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting")
_SECONDS = 30.0
_POLL_SECONDS = 0.2


def grown(before: ServerMetrics, after: ServerMetrics, name: str) -> float | None:
    """How much a counter grew; None if the server does not have it."""
    now = after.totals.get(name)
    return None if now is None else now - before.totals.get(name, 0.0)


def idle_check(part: str, reading: ServerMetrics) -> Verdict:
    """Whether nothing is left of the requests that were served."""
    values = [reading.totals.get(name) for name in _HELD]
    shown = ", ".join("not in /metrics" if value is None else f"{value:g}" for value in values)
    check = "no KV block is in use, no request is left"
    return Verdict(part, check, all(value == 0 for value in values), f"KV usage, running, waiting: {shown}")


def read_text(base_url: str) -> str:
    """What `/metrics` answers.

    Raises:
        httpx.HTTPError: it does not.
    """
    # A proxy that the environment names is not for a server on this machine.
    answer = httpx.get(f"{base_url}/metrics", trust_env=False, timeout=_SECONDS)
    answer.raise_for_status()
    return answer.text


def settled_text(base_url: str, within: float = 20.0) -> str:
    """What `/metrics` answers once the server is idle, or so many seconds later.

    Raises:
        httpx.HTTPError: it does not answer.
    """
    deadline = time.monotonic() + within
    while True:
        text = read_text(base_url)
        if idle_check("", ServerMetrics.parse(text)).passed or time.monotonic() > deadline:
            return text
        time.sleep(_POLL_SECONDS)
