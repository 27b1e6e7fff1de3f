"""The answer of a load test in a few sentences: they come first in every report."""

from typing import TYPE_CHECKING

from loadtests.report.numbers import count, number, percent, time_text

if TYPE_CHECKING:
    from loadtests.report.result import Result


def conclusion(result: "Result") -> str:
    """Success, throughput and latency, then whether the server counted the same."""
    return f"{_outcome(result)} {server_check(result)}"


def counts_agree(result: "Result") -> bool | None:
    """Whether server and clients counted the same requests and tokens; None without the server's counts."""
    server, total = result.server, result.total
    if server is None:
        return None
    pairs = (server.requests, total.succeeded), (server.prompt_tokens, total.prompt_tokens)
    return all(one == other for one, other in (*pairs, (server.output_tokens, total.output_tokens)))


def server_check(result: "Result") -> str:
    """How the server's counts compare with the clients', with the reason for a difference."""
    server, total = result.server, result.total
    if server is None:
        return "The server's /metrics could not be read."
    if counts_agree(result):
        return (
            f"The server counted the same {count(total.succeeded)} requests, {count(total.prompt_tokens)} prompt "
            f"tokens and {count(total.output_tokens)} output tokens."
        )
    reasons = [
        f"{count(amount)} {words}"
        for amount, words in (
            (total.requests - total.succeeded, "requests failed"),
            (result.given_up, "were given up at the end"),
            (result.missing_workers, "workers sent no last samples"),
        )
        if amount
    ]
    because = f" ({', '.join(reasons)})" if reasons else " (does the server have other clients?)"
    return (
        f"The server counted {count(server.requests)} requests and {count(server.output_tokens)} output tokens, the "
        f"clients {count(total.succeeded)} and {count(total.output_tokens)}{because}."
    )


def _outcome(result: "Result") -> str:
    total = result.total
    if not total.requests:
        return "No request ended."
    failed = total.requests - total.succeeded
    if not total.succeeded:
        return f"All {count(total.requests)} requests failed."
    outcome = (
        f"{count(failed)} of {count(total.requests)} requests failed"
        if failed
        else f"All {count(total.requests)} requests succeeded"
    )
    latencies = [
        f"{name} p95 {time_text(found.p95)}"
        for name, found in (("TTFT", total.ttft), ("TPOT", total.tpot))
        if found is not None
    ]
    rates = f"{number(total.requests_per_second)} requests/s, {number(total.output_tokens_per_second)} output tokens/s"
    sentence = f"{outcome}: {', '.join([rates, *latencies])}."
    if total.goodput is not None:
        sentence += f" {percent(total.goodput.share)} met the SLO."
    return sentence
