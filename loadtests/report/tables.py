"""A load test's figures as the texts of tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.report.latencies import LATENCIES
from loadtests.report.numbers import UNKNOWN, Unit, count, number, percent, unit_for
from loadtests.report.result import Result
from loadtests.stream.summary import Summary


@dataclass(frozen=True)
class Table:
    """Texts in rows.

    Attributes:
        groups: names of neighbouring columns together, and how many they are.
        columns: their names, without that of the first, which has the rows' names.
        rows: name and cells.
    """

    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Failure:
    """Requests that failed in one way.

    Attributes:
        kind: which.
        requests: how many.
        share: of all requests.
        example: what the first of them was told.
    """

    kind: str
    requests: str
    share: str
    example: str


def by_scenario(result: Result) -> Table:
    """All requests, and each scenario's."""
    summaries = [("all", result.total), *result.scenarios.items()]
    groups, columns = [("", 2)], ["requests", "failed"]
    rows = [
        (name, [count(summary.requests), count(summary.requests - summary.succeeded)]) for name, summary in summaries
    ]
    for latency in LATENCIES:
        found = [latency.distribution(summary) for _, summary in summaries]
        unit = unit_for(one.p99 for one in found if one is not None)
        groups.append((f"{latency.short}, {unit.name}", 3))
        columns += ["p50", "p95", "p99"]
        for (_, cells), one in zip(rows, found, strict=True):
            cells += [UNKNOWN] * 3 if one is None else [unit.of(one.p50), unit.of(one.p95), unit.of(one.p99)]
    unit = unit_for(summary.gaps.p95 for _, summary in summaries if summary.gaps is not None)
    groups += [(f"gaps, {unit.name}", 1), ("tokens per chunk", 1), ("tokens/s per stream", 1)]
    columns += ["p95", "mean", "p50"]
    for (_, cells), (_, summary) in zip(rows, summaries, strict=True):
        cells += _stream(summary, unit)
    return Table(groups, columns, rows)


def failures(result: Result) -> list[Failure]:
    """By kind, the most frequent first."""
    failed = [one for one in result.everything if one.error is not None]
    # Of each kind the last in this order stays.
    examples = {one.error: one.message for one in sorted(failed, key=lambda one: -one.ended)}
    return [
        Failure(kind.value, count(number), percent(number / len(result.everything)), examples[kind] or UNKNOWN)
        for kind, number in Counter(one.error for one in failed if one.error is not None).most_common()
    ]


def counted(result: Result) -> list[tuple[str, str, str]]:
    """What, as its clients counted, as the server did; nothing if it does not tell."""
    total, server = result.total, result.server
    if server is None:
        return []
    return [
        ("prompt tokens", count(total.prompt_tokens), count(server.prompt_tokens)),
        ("output tokens", count(total.output_tokens), count(server.output_tokens)),
        ("drafts verified", "", count(server.drafts)),
        ("draft tokens", "", count(server.draft_tokens)),
        ("draft tokens accepted", "", count(server.accepted_tokens)),
        ("acceptance rate", "", percent(server.acceptance_rate)),
        ("acceptance length", "", number(server.acceptance_length)),
        ("KV cache in use at the end", "", percent(server.kv_usage)),
        ("requests running at the end", "", count(server.running)),
        ("requests waiting at the end", "", count(server.waiting)),
    ]


def _stream(summary: Summary, unit: Unit) -> list[str]:
    return [
        unit.of(None if summary.gaps is None else summary.gaps.p95),
        number(None if summary.tokens_per_chunk is None else summary.tokens_per_chunk.mean),
        number(None if summary.stream_tokens_per_second is None else summary.stream_tokens_per_second.p50),
    ]
