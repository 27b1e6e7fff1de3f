"""The result of a load test: everything that its reports show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from loadtests.report.numbers import count, number, percent, time_text
from loadtests.server import ServerCounts
from loadtests.stream.summary import Slo, Summary, summarise
from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Result:
    """A finished load test. Times are seconds of the clock of `started`.

    Attributes:
        host: URL of the server, without credentials.
        sent: number of requests that were sent; those given up at the end have no measures.
        server: increase of the server's counters; None if its `/metrics` cannot be read.
        workers: number of Locust's worker processes; 0 if there is one process only.
    """

    model: str
    host: str
    started: float
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
    def seconds(self) -> float:
        """Time from the beginning to the last end of a request."""
        return max((one.ended for one in self.everything), default=self.started) - self.started

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


def conclusion(result: Result) -> list[str]:
    """Success, throughput and latency; then whether the server counted the same."""
    return [_outcome(result), _server_check(result)]


def limits(slo: Slo) -> str:
    """The limits of an SLO, such as "TTFT ≤ 300 ms"."""
    names = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
    return ", ".join(f"{names[key]} ≤ {time_text(limit)}" for key, limit in asdict(slo).items() if limit is not None)


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
        sentence += f" {percent(total.goodput.share)} met the SLO ({limits(total.goodput.slo)})."
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
