"""The result of a load test and its report, for all formats of the report kit."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from loadtests.client import Measures
from loadtests.server import ServerCounts
from loadtests.summary import Slo, Summary, summarise
from vllm_spec_tools.report import Report, Table
from vllm_spec_tools.report.provenance import model_name

UNKNOWN = "-"
_DIGITS = 3
# From this time on, in seconds, times are shown in seconds.
_LONG = 10.0
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
_NOTE = (
    "TTFT: time to first token. TPOT: time per output token after the first. Gaps: from one chunk to the next. Tokens "
    "per chunk: mean; more than 1 shows speculation. Times and tokens are those of successful requests; requests given "
    "up at the end of the test do not count."
)
_SERVER_NOTE = (
    "The server's figures are the difference of its /metrics before and after the test. They include requests that "
    "failed or were given up, and those of other clients."
)


def number(value: float | None) -> str:
    """Three significant digits, and all digits before the point: 0.0123, 1.23, 12.3, 1,234."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    # Rounded first: 9.999 is 10.0.
    power = int(f"{value:.{_DIGITS - 1}e}".partition("e")[2])
    return f"{value:,.{max(_DIGITS - 1 - power, 0) if value else 0}f}"


def count(value: float | None) -> str:
    """A whole number."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share of 1."""
    return UNKNOWN if share is None else f"{share:.1%}"


def milliseconds(seconds: float | None) -> str:
    """A time in ms, without its unit."""
    return number(None if seconds is None else seconds * 1000)


def time_text(seconds: float) -> str:
    """A time with its unit: milliseconds below 10 s."""
    return f"{number(seconds)} s" if seconds >= _LONG else f"{milliseconds(seconds)} ms"


@dataclass(frozen=True)
class Result:
    """A finished load test.

    Attributes:
        host: URL of the server, without credentials.
        measures: by scenario, the requests that ended.
        sent: number of requests that were sent; those given up at the end have no measures.
        server: increase of the server's counters; None if its `/metrics` cannot be read.
        workers: number of Locust's worker processes; 0 if there is one process only.
    """

    model: str
    host: str
    options: Mapping[str, Any]
    slo: Slo | None
    measures: Mapping[str, Sequence[Measures]]
    sent: int
    server: ServerCounts | None
    workers: int = 0
    missing_workers: int = 0

    @cached_property
    def everything(self) -> list[Measures]:
        """Requests of all scenarios."""
        return [one for of_scenario in self.measures.values() for one in of_scenario]

    @cached_property
    def total(self) -> Summary:
        """Figures of all scenarios together."""
        return summarise(self.everything, self.slo)

    @cached_property
    def scenarios(self) -> dict[str, Summary]:
        """Figures by scenario, in the order of their names."""
        return {name: summarise(found, self.slo) for name, found in sorted(self.measures.items())}

    @property
    def given_up(self) -> int:
        """Number of requests without an end: the test was over first."""
        return self.sent - len(self.everything)

    @property
    def counts_agree(self) -> bool | None:
        """Whether server and clients counted the same requests and tokens; None without the server's counts."""
        server, total = self.server, self.total
        if server is None:
            return None
        counted = (server.requests, server.prompt_tokens, server.output_tokens)
        return counted == (total.succeeded, total.prompt_tokens, total.output_tokens)


def report_of(result: Result, origin: Mapping[str, Any]) -> Report:
    """Makes the report: success, throughput and latency first, then whether the server counted the same."""
    processes = f" by {result.workers} worker processes" if result.workers else ""
    problems = []
    if failed := result.total.requests - result.total.succeeded:
        problems.append(f"{count(failed)} requests failed.")
    if result.missing_workers:
        problems.append(f"{result.missing_workers} of {result.workers} worker processes sent no last samples.")
    return Report(
        "loadtest",
        f"Load test of {model_name(result.model)}",
        origin,
        conclusion=[_outcome(result), _server_check(result)],
        tables=list(_tables(result)),
        notes=[_NOTE, f"{result.host} was under load for {number(result.total.window_seconds)} s{processes}."],
        problems=problems,
        data=_data(result),
    )


def _outcome(result: Result) -> str:
    total = result.total
    if not total.requests:
        return "No request ended."
    failed = total.requests - total.succeeded
    if not total.succeeded:
        return f"All {count(total.requests)} requests failed."
    outcome = f"All {count(total.requests)} requests succeeded"
    if failed:
        outcome = f"{count(failed)} of {count(total.requests)} requests failed"
    figures = [f"{number(total.requests_per_second)} requests/s"]
    figures.append(f"{number(total.output_tokens_per_second)} output tokens/s")
    for name, found in (("TTFT", total.ttft), ("TPOT", total.tpot)):
        if found is not None:
            figures.append(f"{name} p95 {time_text(found.p95)}")
    sentence = f"{outcome}: {', '.join(figures)}."
    if total.goodput is not None:
        limits = {key: limit for key, limit in asdict(total.goodput.slo).items() if limit is not None}
        slo = ", ".join(f"{_LATENCIES[key]} ≤ {time_text(limit)}" for key, limit in limits.items())
        sentence += f" {percent(total.goodput.share)} met the SLO ({slo})."
    return sentence


def _server_check(result: Result) -> str:
    """Compares the server's counts with the clients', and gives the reason for a difference."""
    server, total = result.server, result.total
    if server is None:
        return "The server's /metrics could not be read."
    if result.counts_agree:
        return (
            f"The server counted the same {count(total.succeeded)} requests, {count(total.prompt_tokens)} prompt "
            f"tokens and {count(total.output_tokens)} output tokens."
        )
    amounts = (
        (total.requests - total.succeeded, "requests failed"),
        (result.given_up, "were given up at the end"),
        (result.missing_workers, "workers sent no last samples"),
    )
    reasons = ", ".join(f"{count(amount)} {words}" for amount, words in amounts if amount)
    return (
        f"The server counted {count(server.requests)} requests and {count(server.output_tokens)} output tokens, the "
        f"clients {count(total.succeeded)} and {count(total.output_tokens)} "
        f"({reasons or 'does the server have other clients?'})."
    )


def _tables(result: Result) -> Iterator[Table]:
    percentiles = [f"{name} {share}" for name in _LATENCIES.values() for share in ("p50", "p95", "p99")]
    header = ["scenario", "requests", "failed", *percentiles, "gap p95", "tokens per chunk", "tokens/s per stream p50"]
    summaries = {"all": result.total, **result.scenarios}
    yield Table("Requests by scenario; times in ms", header, [_row(*one) for one in summaries.items()])
    if failed := [one for one in result.everything if one.error is not None]:
        # The dict keeps the last message of each kind: that of the earliest failure in this order.
        examples = {one.error: one.message for one in sorted(failed, key=lambda one: -one.ended)}
        rows = [
            [kind.value, examples[kind] or UNKNOWN, count(amount), percent(amount / len(result.everything))]
            for kind, amount in Counter(one.error for one in failed if one.error is not None).most_common()
        ]
        yield Table("Errors", ["kind", "message of the first", "requests", "share"], rows, text_columns=2)
    if result.server is not None:
        total, server = result.total, result.server
        rows = [
            ["requests", count(total.succeeded), count(server.requests)],
            ["prompt tokens", count(total.prompt_tokens), count(server.prompt_tokens)],
            ["output tokens", count(total.output_tokens), count(server.output_tokens)],
            ["draft tokens", "", count(server.draft_tokens)],
            ["draft tokens accepted", "", count(server.accepted_tokens)],
            ["acceptance rate", "", percent(server.acceptance_rate)],
            ["acceptance length", "", number(server.acceptance_length)],
            ["KV cache in use at the end", "", percent(server.kv_usage)],
        ]
        yield Table("Counts of clients and server", ["", "clients", "server"], rows, _SERVER_NOTE)


def _row(scenario: str, summary: Summary) -> list[str]:
    cells = [scenario, count(summary.requests), count(summary.requests - summary.succeeded)]
    for key in _LATENCIES:
        found = getattr(summary, key)
        cells += [UNKNOWN] * 3 if found is None else [milliseconds(time) for time in (found.p50, found.p95, found.p99)]
    gaps, sizes, speed = summary.gaps, summary.tokens_per_chunk, summary.stream_tokens_per_second
    cells.append(milliseconds(None if gaps is None else gaps.p95))
    cells.append(number(None if sizes is None else sizes.mean))
    return [*cells, number(None if speed is None else speed.p50)]


def _data(result: Result) -> dict[str, Any]:
    server: dict[str, Any] | None = None
    if result.server is not None:
        server = asdict(result.server) | {
            "acceptance_rate": result.server.acceptance_rate,
            "acceptance_length": result.server.acceptance_length,
            "agrees_with_clients": result.counts_agree,
        }
    return {
        "model": result.model,
        "options": {"host": result.host, **result.options},
        "workers": {"count": result.workers, "missing": result.missing_workers},
        "sent": result.sent,
        "given_up": result.given_up,
        "all": asdict(result.total),
        "scenarios": {name: asdict(summary) for name, summary in result.scenarios.items()},
        "server": server,
    }
