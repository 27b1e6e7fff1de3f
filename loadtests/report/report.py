"""The report of a load test, for all formats of the report kit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from loadtests.report.charts import charts_of
from loadtests.report.numbers import UNKNOWN, count, milliseconds, number, percent
from loadtests.report.result import Result, conclusion
from loadtests.stream.summary import Summary
from vllm_spec_tools.report import Measurements, Report, Table
from vllm_spec_tools.report.provenance import model_name

_LATENCIES = {"TTFT": "ttft", "TPOT": "tpot", "end to end": "e2e"}
_NOTES = (
    "TTFT: time to first token. TPOT: time per output token after the first. Gaps: from one chunk to the next. Tokens "
    "per chunk: mean; more than 1 shows speculation. Times and tokens are those of successful requests; requests given "
    "up at the end of the test do not count. In the charts a request is at its sending time, and the tokens of a "
    "response are spread evenly from its first to its last.",
)


def report_of(result: Result, origin: Mapping[str, Any]) -> Report:
    """Makes the report."""
    processes = f" by {result.workers} worker processes" if result.workers else ""
    return Report(
        "loadtest",
        f"Load test of {model_name(result.model)}",
        origin,
        conclusion(result),
        list(_tables(result)),
        charts_of(result),
        [*_NOTES, f"{result.host} was under load for {number(result.seconds)} s{processes}."],
        list(_problems(result)),
        _measurements(result),
        _data(result),
    )


def _problems(result: Result) -> Iterator[str]:
    if failed := result.total.requests - result.total.succeeded:
        yield f"{count(failed)} requests failed."
    if result.missing_workers:
        yield f"{result.missing_workers} of {result.workers} worker processes sent no last samples."


def _tables(result: Result) -> Iterator[Table]:
    percentiles = [f"{name} {share}" for name in _LATENCIES for share in ("p50", "p95", "p99")]
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
        note = (
            "The server's figures are the difference of its /metrics before and after the test. They include requests "
            "that failed or were given up, and those of other clients."
        )
        yield Table("Counts of clients and server", ["", "clients", "server"], _counts(result), note)


def _row(scenario: str, summary: Summary) -> list[str]:
    cells = [scenario, count(summary.requests), count(summary.requests - summary.succeeded)]
    for key in _LATENCIES.values():
        found = getattr(summary, key)
        cells += [UNKNOWN] * 3 if found is None else [milliseconds(time) for time in (found.p50, found.p95, found.p99)]
    gaps, sizes, speed = summary.gaps, summary.tokens_per_chunk, summary.stream_tokens_per_second
    cells.append(milliseconds(None if gaps is None else gaps.p95))
    cells.append(number(None if sizes is None else sizes.mean))
    return [*cells, number(None if speed is None else speed.p50)]


def _counts(result: Result) -> list[list[str]]:
    total, server = result.total, result.server
    assert server is not None
    return [
        ["requests", count(total.succeeded), count(server.requests)],
        ["prompt tokens", count(total.prompt_tokens), count(server.prompt_tokens)],
        ["output tokens", count(total.output_tokens), count(server.output_tokens)],
        ["drafts verified", "", count(server.drafts)],
        ["draft tokens", "", count(server.draft_tokens)],
        ["draft tokens accepted", "", count(server.accepted_tokens)],
        ["acceptance rate", "", percent(server.acceptance_rate)],
        ["acceptance length", "", number(server.acceptance_length)],
        ["KV cache in use at the end", "", percent(server.kv_usage)],
        ["requests running at the end", "", count(server.running)],
        ["requests waiting at the end", "", count(server.waiting)],
    ]


def _measurements(result: Result) -> Measurements:
    """Throughput in 1/s, latencies in seconds, by scenario; the level is the request rate or the number of users."""
    measured = Measurements()
    level = float(result.options.get("rate") or result.options.get("num_users") or 0)
    for scenario, summary in {"all": result.total, **result.scenarios}.items():
        values: dict[str, float | None] = {
            "requests": summary.requests,
            "failed": summary.requests - summary.succeeded,
            "requests_per_second": summary.requests_per_second,
            "output_tokens_per_second": summary.output_tokens_per_second,
        }
        for key in _LATENCIES.values():
            if (found := getattr(summary, key)) is not None:
                values |= {f"{key}_{name}": value for name, value in asdict(found).items()}
        measured.add(result.model, scenario, level, 0, values)
    return measured


def _data(result: Result) -> dict[str, Any]:
    server = result.server
    return {
        "model": result.model,
        "options": {"host": result.host, **result.options},
        "workers": {"count": result.workers, "missing": result.missing_workers},
        "sent": result.sent,
        "given_up": result.given_up,
        "all": asdict(result.total),
        "scenarios": {name: asdict(summary) for name, summary in result.scenarios.items()},
        "server": None
        if server is None
        else asdict(server)
        | {
            "acceptance_rate": server.acceptance_rate,
            "acceptance_length": server.acceptance_length,
            "agrees_with_clients": result.counts_agree,
        },
    }
