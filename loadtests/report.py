"""The result of a load test and its report, for all formats of the report kit."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtests.client import Measures
from loadtests.summary import Slo, summarise
from vllm_spec_tools.report import Report, Table
from vllm_spec_tools.report.provenance import model_name

UNKNOWN = "-"
_DIGITS = 3
# From this time on, in seconds, times are shown in seconds.
_LONG = 10.0
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
_SHARES = ("p50", "p95", "p99")
_BOTH_COUNT = ("prompt_tokens", "output_tokens")
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
    server: Mapping[str, float | None] | None
    workers: int = 0
    missing_workers: int = 0

    @cached_property
    def everything(self) -> list[Measures]:
        """Requests of all scenarios."""
        return [one for of_scenario in self.measures.values() for one in of_scenario]

    @cached_property
    def total(self) -> dict[str, Any]:
        """Figures of all scenarios together."""
        return summarise(self.everything, self.slo)

    @cached_property
    def scenarios(self) -> dict[str, dict[str, Any]]:
        """Figures by scenario, in the order of their names."""
        return {name: summarise(found, self.slo) for name, found in sorted(self.measures.items())}

    @property
    def given_up(self) -> int:
        """Number of requests without an end: the test was over first."""
        return self.sent - len(self.everything)

    @property
    def counts_agree(self) -> bool | None:
        """Whether server and clients counted the same requests and tokens; None without the server's counts."""
        if self.server is None:
            return None
        tokens = all(self.server[key] == self.total[key] for key in _BOTH_COUNT)
        return tokens and self.server["requests"] == self.total["succeeded"]


def report_of(result: Result, origin: Mapping[str, Any]) -> Report:
    """Makes the report: success, throughput and latency first, then whether the server counted the same."""
    total, processes = result.total, f" by {result.workers} worker processes" if result.workers else ""
    problems = [f"Requests that failed ({kind}): {count(amount)}." for kind, amount in total["errors"].items()]
    if result.missing_workers:
        problems.append(f"{result.missing_workers} of {result.workers} worker processes sent no last samples.")
    server = None if result.server is None else {**result.server, "agrees_with_clients": result.counts_agree}
    return Report(
        "loadtest",
        f"Load test of {model_name(result.model)}",
        origin,
        conclusion=[_outcome(total), _server_check(result)],
        tables=list(_tables(result)),
        notes=[_NOTE, f"{result.host} was under load for {number(total['window_seconds'])} s{processes}."],
        problems=problems,
        data={
            "model": result.model,
            "options": {"host": result.host, **result.options},
            "workers": {"count": result.workers, "missing": result.missing_workers},
            "sent": result.sent,
            "given_up": result.given_up,
            "all": total,
            "scenarios": result.scenarios,
            "server": server,
        },
    )


def _outcome(total: Mapping[str, Any]) -> str:
    failed = total["requests"] - total["succeeded"]
    if not total["succeeded"]:
        return f"All {count(failed)} requests failed." if failed else "No request ended."
    outcome = f"All {count(total['requests'])} requests succeeded"
    if failed:
        outcome = f"{count(failed)} of {count(total['requests'])} requests failed"
    figures = [f"{number(total['requests_per_second'])} requests/s"]
    figures.append(f"{number(total['output_tokens_per_second'])} output tokens/s")
    figures += [f"{_LATENCIES[key]} p95 {time_text(total[key]['p95'])}" for key in ("ttft", "tpot") if total[key]]
    sentence = f"{outcome}: {', '.join(figures)}."
    if total["goodput"] is not None:
        limits = {key: limit for key, limit in total["goodput"]["slo"].items() if limit is not None}
        slo = ", ".join(f"{_LATENCIES[key]} ≤ {time_text(limit)}" for key, limit in limits.items())
        sentence += f" {percent(total['goodput']['share'])} met the SLO ({slo})."
    return sentence


def _server_check(result: Result) -> str:
    """Compares the server's counts with the clients', and gives the reason for a difference."""
    server, total = result.server, result.total
    if server is None:
        return "The server's /metrics could not be read."
    requests, prompt_tokens, tokens = (count(total[key]) for key in ("succeeded", *_BOTH_COUNT))
    if result.counts_agree:
        same = f"{requests} requests, {prompt_tokens} prompt tokens and {tokens} output tokens"
        return f"The server counted the same {same}."
    amounts = (
        (total["requests"] - total["succeeded"], "requests failed"),
        (result.given_up, "were given up at the end"),
        (result.missing_workers, "workers sent no last samples"),
    )
    reasons = ", ".join(f"{count(amount)} {words}" for amount, words in amounts if amount)
    theirs = f"{count(server['requests'])} requests and {count(server['output_tokens'])} output tokens"
    reasons = reasons or "does the server have other clients?"
    return f"The server counted {theirs}, the clients {requests} and {tokens} ({reasons})."


def _tables(result: Result) -> Iterator[Table]:
    percentiles = [f"{name} {share}" for name in _LATENCIES.values() for share in _SHARES]
    header = ["scenario", "requests", "failed", *percentiles, "gap p95", "tokens per chunk", "tokens/s per stream p50"]
    summaries = {"all": result.total, **result.scenarios}
    yield Table("Requests by scenario; times in ms", header, [_row(*one) for one in summaries.items()])
    if (server := result.server) is not None:
        rows = [
            ["requests", count(result.total["succeeded"]), count(server["requests"])],
            *([key.replace("_", " "), count(result.total[key]), count(server[key])] for key in _BOTH_COUNT),
            ["draft tokens", "", count(server["draft_tokens"])],
            ["acceptance rate", "", percent(server["acceptance_rate"])],
            ["acceptance length", "", number(server["acceptance_length"])],
            ["KV cache in use at the end", "", percent(server["kv_usage"])],
        ]
        yield Table("Counts of clients and server", ["", "clients", "server"], rows, _SERVER_NOTE)


def _row(scenario: str, summary: Mapping[str, Any]) -> list[str]:
    def shown(key: str, figure: str, show: Callable[[float | None], str] = milliseconds) -> str:
        return show(None if summary[key] is None else summary[key][figure])

    cells = [scenario, count(summary["requests"]), count(summary["requests"] - summary["succeeded"])]
    cells += [shown(key, share) for key in _LATENCIES for share in _SHARES]
    others = [shown("tokens_per_chunk", "mean", number), shown("stream_tokens_per_second", "p50", number)]
    return [*cells, shown("gaps", "p95"), *others]
