"""Readings of a server's `/metrics`."""

import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

from loadtests.acceptance.verdicts import Verdict
from loadtests.server.counters import Reading

ERRORS = "vllm_spec_plugin:proposer_errors_total"
_HELD = ("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting")
_SECONDS = 30.0
_POLL_SECONDS = 0.2


def grown(before: Reading, after: Reading, name: str) -> float | None:
    """How much a counter grew; None if the server does not have it."""
    now = after.values.get(name)
    return None if now is None else now - before.values.get(name, 0.0)


def by_label(text: str, name: str, label: str) -> dict[str, float]:
    """Samples of that name by a label's values, other labels added up.

    Args:
        text: what `/metrics` answered.
        name: of the samples.
        label: which.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                value = sample.labels.get(label, "")
                found[value] = found.get(value, 0.0) + sample.value
    return found


def idle_check(part: str, reading: Reading) -> Verdict:
    """Whether nothing is left of the requests that were served."""
    values = [reading.values.get(name) for name in _HELD]
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
        if idle_check("", Reading.of(text)).passed or time.monotonic() > deadline:
            return text
        time.sleep(_POLL_SECONDS)
