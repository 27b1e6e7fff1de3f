"""The answer of a load test in a few sentences, which come first in every report."""

from loadtests.report.numbers import count, number, percent, time_text
from loadtests.report.result import Result
from loadtests.stream.summary import Slo


def conclusion(result: Result) -> list[str]:
    """Success, throughput and latency; then whether the server counted the same."""
    return [_outcome(result), _server_check(result)]


def limits(slo: Slo) -> str:
    """The limits of an SLO, such as "TTFT ≤ 300 ms"."""
    names = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
    return ", ".join(f"{names[key]} ≤ {time_text(limit)}" for key, limit in slo.limits().items() if limit is not None)


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
    """How the server's counts compare with the clients', with the reason for a difference."""
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
