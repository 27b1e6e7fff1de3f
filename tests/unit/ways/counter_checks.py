"""Checks of rules about what is counted, each on one way to draft without a model."""

from tests.engine.lengths import equal_clock
from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_pipelines import either
from tests.unit.ways.request_checks import run
from tests.ways.pipelines import Bench, K, add
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer

FORECASTS = ("predicted_seconds", "measured_seconds", "expected_saved_seconds", "realised_saved_seconds", "acceptance")


def drafts_counted(bench: Bench) -> None:
    """Draft tokens are at least those that were verified, of each proposer; their drafts at most as many."""
    pipeline = run(bench)
    for counters in (each for each in pipeline.counters.values() if each.verified_per_position):
        assert counters.draft_tokens >= sum(counters.verified_per_position) > 0
        assert counters.verified_per_position[0] <= counters.drafts <= counters.draft_tokens
    assert set(bench.methods) <= pipeline.counters.keys()


def errors_counted(bench: Bench) -> None:
    def fail(self: SuffixProposer, requests: object) -> None:
        raise RuntimeError

    pipeline = bench.pipeline(either)
    bench.monkeypatch.setattr(SuffixProposer, "propose", fail)
    pipeline.add("a", 1, 5, 30)
    pipeline.finish()
    assert pipeline.outputs("a", 5, 30) == pipeline.expected(1, 5, 30)
    assert set(pipeline.counters["suffix"].proposer_errors) == {"raised"}
    assert not pipeline.counters["suffix"].drafts


def seconds_counted(bench: Bench) -> None:
    assert run(bench).counters["suffix"].proposer_seconds > 0


def positions_counted(bench: Bench) -> None:
    pipeline = run(bench)
    verified, counted = ([0] * K, pipeline.total("verified_per_position"))
    for _, planned in pipeline.verified:
        verified = [count + (planned > i) for i, count in enumerate(verified)]
    if bench.kind.is_async:
        # The device runs ahead of a request's end.
        assert all(0.9 * device < scheduler <= device for device, scheduler in zip(verified, counted, strict=True))
    else:
        assert counted == verified
    assert 0 < sum(pipeline.total("accepted_per_position")) < sum(counted)


def ended_counted(bench: Bench) -> None:
    rates = run(bench).total("ended")
    assert len(rates) >= 2
    assert all(0 <= rate <= 1 and 1 <= length <= 1 + K for rate, length in rates)
    assert any(rate > 0 for rate, _ in rates)


def lengths_counted(bench: Bench) -> None:
    lengths = run(bench, spec_tokens=3).counters[_whole(bench)].chosen_lengths
    assert len(lengths) == 4
    assert lengths[3] > 10


def _whole(bench: Bench) -> str:
    """The method under which decisions are counted."""
    return bench.methods[0] if len(bench.methods) == 1 else "cascade"


def salts_counted(bench: Bench) -> None:
    """One of five requests has a salt, and one no drafts, so that it shares nothing."""
    pipeline = bench.pipeline(either)
    for i in range(5):
        params = {"thinking_token_budget": 3} if i == 4 else {}
        add(pipeline, f"r{i}", 6, 20, params, cache_salt="secret" if i == 0 else None)
        pipeline.finish()
    assert pipeline.total("requests_without_salt") == 3


def forecasts_counted(bench: Bench) -> None:
    """The policy `optimal` makes forecasts."""
    pipeline = bench.pipeline(either, policy="optimal")
    serve_many(bench, pipeline)
    assert [name for name in FORECASTS if not pipeline.total(name)] == []


def serve_many(bench: Bench, pipeline: Pipeline) -> None:
    """Serves 30 requests that overlap, in steps that are equally long for the policy."""
    bench.equal_steps(equal_clock())
    for i in range(30):
        pipeline.add(f"r{i}", i, 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()
