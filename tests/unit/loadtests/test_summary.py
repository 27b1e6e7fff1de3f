"""Figures of many requests."""

import json
from dataclasses import asdict

import pytest

from loadtests.stream.summary import Slo, distribution, summarise
from loadtests.stream.timing import ErrorKind, Measures
from vllm_spec_plugin.schema.errors import UserError


def served(started: float, seconds: float, tokens: int = 11, ttft: float = 0.5) -> Measures:
    """A request whose tokens came in two chunks."""
    return Measures(
        started=started,
        ended=started + seconds,
        prompt_tokens=4,
        output_tokens=tokens,
        ttft=ttft,
        e2e=seconds,
        tpot=(seconds - ttft) / (tokens - 1) if tokens > 1 else None,
        gaps=(seconds - ttft,) if tokens > 1 else (),
        tokens_per_chunk=(1, tokens - 1) if tokens > 1 else (1,),
        output_tokens_per_second=tokens / seconds,
    )


def failed(started: float, kind: ErrorKind) -> Measures:
    return Measures(started, started + 0.1, kind, "why", output_tokens=1000, ttft=9.0, tokens_per_chunk=(7,))


MIXED = [served(0, 2), served(1, 3), failed(1, ErrorKind.CUT), failed(2, ErrorKind.HTTP_5XX), failed(3, ErrorKind.CUT)]


def test_rates_are_of_requests_that_succeeded_over_the_whole_window() -> None:
    summary = summarise(MIXED)
    assert summary.window_seconds == 4
    assert (summary.requests, summary.succeeded) == (5, 2)
    assert summary.errors == {"cut": 2, "http_5xx": 1}
    assert summary.requests_per_second == 0.5
    assert (summary.output_tokens, summary.prompt_tokens) == (22, 8)
    assert summary.output_tokens_per_second == 5.5
    assert summary.ttft is not None
    assert (summary.ttft.count, summary.ttft.max) == (2, 0.5)


def test_chunk_sizes_and_gaps_are_those_of_all_requests() -> None:
    summary = summarise(MIXED)
    assert summary.chunks_by_tokens == {1: 2, 10: 2}
    assert summary.tokens_per_chunk is not None
    assert summary.tokens_per_chunk.mean == 5.5
    assert summary.gaps is not None
    assert summary.gaps.mean == 2.0


def test_it_can_be_written_as_json_also_without_any_request() -> None:
    for measures in (MIXED, [], [served(1, 0.5, tokens=1)]):
        summary = summarise(measures, Slo(ttft=1))
        told = json.loads(json.dumps(asdict(summary), allow_nan=False))
        assert told["requests"] == len(measures)
    empty = summarise([])
    assert (empty.requests_per_second, empty.ttft, empty.goodput) == (None, None, None)


def test_percentiles_are_numpys() -> None:
    figures = distribution([None, *(float(value) for value in range(101))])
    assert figures is not None
    assert (figures.count, figures.p50, figures.p90, figures.p95, figures.p99) == (101, 50, 90, 95, 99)
    assert (figures.min, figures.mean, figures.max) == (0, 50, 100)
    assert distribution([None]) is None


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    measures = [*MIXED, served(0, 4, ttft=3.0)]
    assert [Slo(ttft=1).is_met(one) for one in measures] == [True, True, False, False, False, False]
    assert Slo(ttft=0.5).is_met(measures[0])
    goodput = summarise(measures, Slo(ttft=1, e2e=2.5)).goodput
    assert goodput is not None
    assert goodput.good == 1
    assert goodput.share == pytest.approx(1 / 6)
    assert goodput.requests_per_second == 0.25


def test_a_limit_on_time_per_token_is_kept_by_one_token_but_not_by_an_unknown_number() -> None:
    slo = Slo(tpot=0.1)
    assert slo.is_met(served(0, 1, tokens=1))
    assert slo.is_met(served(0, 1.4, tokens=10))
    assert not slo.is_met(served(0, 1.5, tokens=10))
    assert not slo.is_met(Measures(0, 1, ttft=0.5, e2e=1.0))


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_limits_are_positive(limit: float) -> None:
    with pytest.raises(UserError, match="SLO tpot is"):
        Slo(tpot=limit)
