"""Figures of many requests, the server's counts, and the report of a load test."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loadtests.client import ErrorKind, Measures
from loadtests.report import Result, report_of
from loadtests.server import COUNTERS, GAUGES, ServerNotThereError, ServerUnderTest, counts_between, is_idle
from loadtests.summary import Slo, distribution, summarise
from tests.unit.loadtests.mock import mock
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.report import Report, write
from vllm_spec_tools.report.provenance import provenance

AMOUNTS = (40, 400, 5100, 1000, 4000, 2500, 0, 0.25, 0, 0)
SERVER: dict[str, float | None] = dict(zip((*COUNTERS, *GAUGES), AMOUNTS, strict=True))
SERVER |= {"acceptance_rate": 0.625, "acceptance_length": 3.5}


def answered(at: float, ttft: float = 0.2, tpot: float = 0.05, tokens: int = 21) -> Measures:
    """A request that was sent so many seconds after the start, whose tokens came two at a time after the first."""
    e2e = ttft + tpot * (tokens - 1)
    chunks = (1, *[2] * ((tokens - 1) // 2))
    return Measures(
        started=at,
        ended=at + e2e,
        prompt_tokens=10,
        output_tokens=tokens,
        ttft=ttft,
        e2e=e2e,
        tpot=tpot if tokens > 1 else None,
        gaps=(2 * tpot,) * (len(chunks) - 1),
        tokens_per_chunk=chunks,
        output_tokens_per_second=tokens / e2e,
    )


def failed(at: float, kind: ErrorKind = ErrorKind.CUT, message: str = "gone") -> Measures:
    return Measures(at, at + 0.5, kind, message, output_tokens=1000, ttft=9.0, tokens_per_chunk=(7,))


def result(measures: Mapping[str, Sequence[Measures]], **more: Any) -> Result:
    given: dict[str, Any] = {
        "model": "llama",
        "host": "http://localhost:8000",
        "options": {"num_users": 8},
        "slo": None,
        "sent": sum(map(len, measures.values())),
        "server": SERVER,
    }
    return Result(measures=measures, **given | more)


# TTFT 0.2 s and 0.4 s, TPOT 50 ms and 100 ms: 30 requests, of them 2 that failed.
CHAT = [answered(0.5 * i) for i in range(14)] + [failed(1.0), failed(2.0, ErrorKind.HTTP_5XX, "full")]
EDIT = [answered(0.5 * i, ttft=0.4, tpot=0.1) for i in range(14)]
MIXED = result({"edit": EDIT, "chat": CHAT}, slo=Slo(ttft=0.3, tpot=0.06))


def report(found: Result) -> Report:
    return report_of(found, provenance(["--users", "8"], 0, (), {"model": "llama"}, "locust", ("locust",)))


def test_rates_and_figures_are_of_requests_that_succeeded_over_the_whole_window() -> None:
    summary = MIXED.total
    assert (summary["window_seconds"], summary["requests"], summary["succeeded"]) == (pytest.approx(8.9), 30, 28)
    assert summary["errors"] == {"cut": 1, "http_5xx": 1}
    assert (summary["output_tokens"], summary["prompt_tokens"]) == (588, 280)
    assert summary["output_tokens_per_second"] == pytest.approx(588 / 8.9)
    assert (summary["ttft"]["count"], summary["ttft"]["max"]) == (28, 0.4)
    assert summary["tokens_per_chunk"]["mean"] == pytest.approx(21 / 11)
    for measures in ([], [answered(0, tokens=1)]):
        json.dumps(summarise(measures, Slo(ttft=1)), allow_nan=False)
    found = distribution([None, *(float(value) for value in range(101))])
    assert found is not None
    assert [found[key] for key in ("count", "min", "p50", "p95", "p99")] == [101, 0, 50, 95, 99]


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    goodput = MIXED.total["goodput"]
    assert (goodput["good"], goodput["share"]) == (14, 14 / 30)
    slo = Slo(tpot=0.1)
    assert slo.is_met(answered(0, tpot=0.1))
    assert not slo.is_met(answered(0, tpot=0.101))
    # One token has no time per token; an unknown number may have any.
    assert slo.is_met(answered(0, tokens=1))
    assert not slo.is_met(Measures(0, 1, ttft=0.5, e2e=1.0))
    assert not Slo(e2e=100).is_met(failed(0))
    for limit in (0, -1, float("nan")):
        with pytest.raises(UserError, match="tpot"):
            Slo(tpot=limit)


def test_a_report_begins_with_outcome_figures_and_whether_the_server_agrees(tmp_path: Path) -> None:
    agreeing = SERVER | {"requests": 2.0, "prompt_tokens": 20.0, "output_tokens": 42.0}
    good = result({"chat": [answered(0.0), answered(1.0)]}, server=agreeing)
    assert list(report(good).conclusion) == [
        "All 2 requests succeeded: 0.909 requests/s, 19.1 output tokens/s, TTFT p95 200 ms, TPOT p95 50.0 ms.",
        "The server counted the same 2 requests, 20 prompt tokens and 42 output tokens.",
    ]
    assert not report(good).problems
    lacking = report(dataclasses.replace(MIXED, sent=33, workers=4, missing_workers=1))
    assert "46.7% met the SLO (TTFT ≤ 300 ms, TPOT ≤ 60.0 ms)" in lacking.conclusion[0]
    assert all(words in lacking.conclusion[1] for words in ("2 requests failed", "3 were given up", "1 workers"))
    assert len(lacking.problems) == 3
    write(lacking, json=tmp_path / "a.json", html=tmp_path / "a.html", markdown=tmp_path / "a.md")
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["all"]["requests"], found["all"]["goodput"]["good"]) == (30, 14)
    assert {name: summary["succeeded"] for name, summary in found["scenarios"].items()} == {"chat": 14, "edit": 14}
    assert (found["server"]["acceptance_length"], found["server"]["agrees_with_clients"]) == (3.5, False)
    assert lacking.conclusion[0] in (tmp_path / "a.html").read_text()


def test_counters_are_differences_and_gauges_are_not() -> None:
    before = {"vllm:generation_tokens_total": 15.0, "vllm:num_requests_running": 3.0}
    drafts = {"drafts": 20.0, "draft_tokens": 80.0, "accepted_tokens": 50.0}
    drafts = {f"vllm:spec_decode_num_{name}_total": value for name, value in drafts.items()}
    after = {"vllm:generation_tokens_total": 135.0, "vllm:num_requests_running": 2.0} | drafts
    found = counts_between(ServerMetrics(before), ServerMetrics(after))
    assert (found["output_tokens"], found["running"], found["requests"]) == (120, 2, None)
    assert (found["acceptance_rate"], found["acceptance_length"]) == (50 / 80, 3.5)
    idle = counts_between(ServerMetrics(after), ServerMetrics(after))
    assert (idle["drafts"], idle["acceptance_rate"], idle["acceptance_length"]) == (0, None, None)


def test_a_server_names_its_model_and_is_idle_with_all_gauges_at_zero() -> None:
    with mock(model="tiny") as served:
        server = ServerUnderTest(f"{served.base_url}/")
        assert server.first_model()["id"] == "tiny"
        assert is_idle(server.idle_metrics())
    with pytest.raises(ServerNotThereError):
        server.first_model()
    with pytest.raises(ServerNotThereError):
        server.metrics()
    idle = dict.fromkeys(GAUGES.values(), 0.0)
    for name in idle:
        assert not is_idle(ServerMetrics(idle | {name: 0.01}))
        assert not is_idle(ServerMetrics({key: value for key, value in idle.items() if key != name}))
