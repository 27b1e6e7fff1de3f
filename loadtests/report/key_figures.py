"""The few figures that a report begins with."""

from dataclasses import dataclass

from loadtests.report.latencies import LATENCIES
from loadtests.report.numbers import count, number, percent, time_text
from loadtests.report.result import Result
from loadtests.stream.distribution import Distribution
from loadtests.stream.goodput import Slo


@dataclass(frozen=True)
class KeyFigure:
    """One of them.

    Attributes:
        name: what it is.
        value: with its unit.
        note: what belongs to it.
        is_bad: whether it wants looking at.
    """

    name: str
    value: str
    note: str
    is_bad: bool = False


def key_figures(result: Result) -> list[KeyFigure]:
    """Of all requests."""
    total, server = result.total, result.server
    failed = total.requests - total.succeeded
    share = failed / total.requests if total.requests else None
    rate, tokens = number(total.output_tokens_per_second), count(total.output_tokens)
    found = [
        KeyFigure("Requests", count(total.requests), f"{number(total.requests_per_second)} answered per second"),
        KeyFigure("Failed", count(failed), percent(share), failed > 0),
        KeyFigure("Output tokens/s", rate, f"{tokens} in all"),
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
    """An SLO in words."""
    pairs = [(latency.short, latency.limit(slo)) for latency in LATENCIES]
    return ", ".join(f"{name} ≤ {time_text(limit)}" for name, limit in pairs if limit is not None)


def _latency(name: str, found: Distribution | None) -> KeyFigure:
    p50, p95 = (None, None) if found is None else (found.p50, found.p95)
    return KeyFigure(f"{name}, p50", time_text(p50), f"p95 {time_text(p95)}")
