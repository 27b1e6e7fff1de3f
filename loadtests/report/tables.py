"""The figures of a load test as texts: key figures and tables."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from loadtests.report.numbers import UNKNOWN, Unit, count, number, percent, time_text, unit_for
from loadtests.report.result import LATENCIES, Result
from loadtests.stream.summary import Distribution, Slo, Summary


class KeyFigure(NamedTuple):
    """One of the few figures that a page begins with; `is_bad` highlights it."""

    name: str
    value: str
    note: str
    is_bad: bool = False


class Table(NamedTuple):
    """Groups of columns with their widths, the columns after the first one, and each row's name and cells."""

    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    rows: Sequence[tuple[str, list[str]]]


def key_figures(result: Result) -> list[KeyFigure]:
    """The key figures of all requests."""
    total, server = result.total, result.server
    failed = total.requests - total.succeeded
    share = failed / total.requests if total.requests else None
    rate, tokens = number(total.output_tokens_per_second), count(total.output_tokens)
    found = [
        KeyFigure("Requests", count(total.requests), f"{number(total.requests_per_second)} succeeded per second"),
        KeyFigure("Failed", count(failed), percent(share), failed > 0),
        KeyFigure("Output tokens/s", rate, f"{tokens} in total"),
        *(_latency(latency.short, latency.distribution(total)) for latency in LATENCIES[:2]),
    ]
    if total.goodput is not None:
        note = f"{number(total.goodput.requests_per_second)} per second with {limits(total.goodput.slo)}"
        found.append(KeyFigure("Goodput", percent(total.goodput.share), note))
    if server is not None and server.acceptance_rate is not None:
        note = f"{number(server.acceptance_length)} tokens per step with a draft"
        found.append(KeyFigure("Acceptance rate", percent(server.acceptance_rate), note))
    return found


def limits(slo: Slo) -> str:
    """The limits of an SLO."""
    pairs = [(latency.short, latency.limit(slo)) for latency in LATENCIES]
    return ", ".join(f"{name} ≤ {time_text(limit)}" for name, limit in pairs if limit is not None)


def by_scenario(result: Result) -> Table:
    """One row for all requests, and one per scenario."""
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


def failures(result: Result) -> list[tuple[str, str, str, str]]:
    """Kind, number, share and first message of failed requests, the most frequent kind first."""
    failed = [one for one in result.everything if one.error is not None]
    # The dict keeps the last message of each kind: that of the earliest failure in this order.
    examples = {one.error: one.message for one in sorted(failed, key=lambda one: -one.ended)}
    return [
        (kind.value, count(number), percent(number / len(result.everything)), examples[kind] or UNKNOWN)
        for kind, number in Counter(one.error for one in failed if one.error is not None).most_common()
    ]


def counted(result: Result) -> list[tuple[str, str, str]]:
    """Name, clients' figure and server's figure; empty without the server's counts."""
    total, server = result.total, result.server
    if server is None:
        return []
    return [
        ("requests", count(total.succeeded), count(server.requests)),
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


def _latency(name: str, found: Distribution | None) -> KeyFigure:
    p50, p95 = (None, None) if found is None else (found.p50, found.p95)
    return KeyFigure(f"{name}, p50", time_text(p50), f"p95 {time_text(p95)}")


def _stream(summary: Summary, unit: Unit) -> list[str]:
    return [
        unit.of(None if summary.gaps is None else summary.gaps.p95),
        number(None if summary.tokens_per_chunk is None else summary.tokens_per_chunk.mean),
        number(None if summary.stream_tokens_per_second is None else summary.stream_tokens_per_second.p50),
    ]
