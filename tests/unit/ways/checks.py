"""Checks of the rules in `tests/ways/table.py`, each on one way to draft without a model."""

import random
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.request import Request, RequestStatus

from tests.engine.books import holding
from tests.engine.lengths import equal_clock
from tests.unit.scheduling.cases import prompt
from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_pipelines import either, unpredictable
from tests.unit.ways.grammar_checks import continued, grammars
from tests.ways.pipelines import Bench, K, add
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS
from vllm_spec_plugin.policy import random_lengths
from vllm_spec_plugin.policy.fixed import FixedControl
from vllm_spec_plugin.policy.random_lengths import RandomControl
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
from vllm_spec_plugin.scheduling import memory_file

PREDICTION = {"method": "prediction"}


def without_drafts(bench: Bench, reason: str) -> None:
    """Requests of that kind are never drafted for, teach nothing, and are counted; others beside them have drafts."""
    samples = reason == "grammar" and bench.way in (Way.VLLM_V1, Way.VLLM_V2, Way.VLLM_ASYNC)
    if samples:
        bench.monkeypatch.setattr("vllm_spec_plugin.scheduling.native.samples_drafts", lambda config: True)
    pipeline = bench.pipeline(either, policy="optimal")
    bench.equal_steps(equal_clock())
    outcomes, verified = set[str](), pipeline.control.verified

    def noting(request_id: str, *outcome: Any) -> None:
        outcomes.add(request_id)
        verified(request_id, *outcome)

    bench.monkeypatch.setattr(pipeline.control, "verified", noting)
    if reason in ("pooling", "grammar"):
        # The pipeline's device samples for every request, and without a grammar: it is only added.
        regex = StructuredOutputsParams(regex="a*")
        structured = SamplingParams(structured_outputs=regex, max_tokens=20, ignore_eos=not samples)
        regex._backend = "guidance"
        sampling, pooling = (None, PoolingParams(task="embed")) if reason == "pooling" else (structured, None)
        pipeline.scheduler.add_request(Request("special", prompt(1, 5), sampling, pooling))
        assert "special" not in pipeline.scheduler._adapter.requests.ids
        pipeline.scheduler.finish_requests("special", RequestStatus.FINISHED_ABORTED)
    else:
        params: dict[str, Any] = {"thinking_token_budget": 3} if reason == "thinking_budget" else {}
        values = {"resumable": True, "prompt_embeds": torch.zeros(5, 1)}
        given: dict[str, Any] = {reason: values[reason]} if reason in values else {}
        add(pipeline, "special", 5, 20, params, **given)
        for _ in range(4):
            pipeline.step()
        assert pipeline.verified
        assert not any(pipeline.lengths)
    for i in range(6):
        pipeline.add(f"r{i}", 1, 5, 30)
        for _ in range(12):
            pipeline.step()
    pipeline.scheduler.finish_requests("special", RequestStatus.FINISHED_ABORTED)
    pipeline.finish()
    assert "special" not in outcomes
    assert outcomes
    assert any(pipeline.lengths)
    assert pipeline.total("without_drafts") == {reason: 1}


def run(bench: Bench, defaults: dict[str, Any] | None = None, **options: Any) -> Pipeline:
    """Serves four requests with these options, one after the other; `defaults` is the section `requests`."""
    pipeline = bench.pipeline(either, requests=defaults or {})
    for i in range(4):
        pipeline.add(f"r{i}", i, 5, 30, **options)
        pipeline.finish()
    return pipeline


def spec_off(bench: Bench) -> None:
    assert any(run(bench).lengths)
    assert not any(run(bench, spec="off").lengths)


def spec_tokens(bench: Bench) -> None:
    assert max(run(bench).lengths) == K
    assert max(run(bench, spec_tokens=2).lengths) == 2


def defaults(bench: Bench) -> None:
    for given, most in (({}, 2), ({"spec": "on"}, K), ({"spec_tokens": 3}, 3)):
        assert max(run(bench, {"spec_tokens": 2}, **given).lengths) == most
    assert not any(run(bench, {"spec": "off"}).lengths)
    assert any(run(bench, {"spec": "off"}, spec="on").lengths)


def switch(bench: Bench, policy: str) -> None:
    """Requests run meanwhile, and others begin. Off, a drafter rests."""
    pipeline, longest = bench.pipeline(either, policy=policy), dict[int, int]()
    assert pipeline.control.is_constant == (policy == "fixed")
    for i in range(6):
        for keys, most in (({"spec": "off"}, 0), ({"spec_tokens": 2}, 2), ({}, K)):
            pipeline.add(f"{i}{most}before", i, 5, 38)
            pipeline.step()
            bench.switch(**keys)
            # Drafts that are planned already may be verified.
            for _ in range(3):
                pipeline.step()
            pipeline.add(f"{i}{most}after", i, 5, 20)
            first, rests = len(pipeline.lengths), pipeline.total("drafter_rests")
            for _ in range(6):
                pipeline.step()
            longest[most] = max(longest.get(most, 0), *pipeline.lengths[first:])
            assert pipeline.total("max_draft_tokens") == [most]
            if not most and bench.kind.mode.schedulers[0].endswith("NativeScheduler"):
                assert pipeline.total("drafter_rests") >= rests + 4
    pipeline.finish()
    assert longest == {0: 0, 2: 2, K: K}
    for name in pipeline.texts:
        size = 38 if name.endswith("before") else 20
        assert pipeline.outputs(name, 5, size) == pipeline.expected(int(name[0]), 5, size)


def switch_of_both(bench: Bench) -> None:
    for policy in ("fixed", "random"):
        switch(bench, policy)


def spec_method(bench: Bench) -> None:
    for method in bench.methods:
        pipeline = run(bench, spec_method=method)
        drafted = {name for name, counters in pipeline.counters.items() if counters.verified_per_position}
        assert drafted == {method}


def predictions(bench: Bench) -> None:
    pipeline = bench.pipeline(either, first=PREDICTION)
    # Nothing repeats in this family, so that only the prediction says what comes.
    pipeline.add("a", 2, 5, 30, spec_prediction=pipeline.expected(2, 5, 30))
    pipeline.finish()
    if bench.way is Way.OWN:
        # The pipeline's device stands for the worker that drafts; the scheduler lets it.
        assert any(pipeline.lengths)
        return
    assert sum(pipeline.counters["prediction"].accepted_per_position) > 20


def outputs(bench: Bench) -> None:
    """Lengths and the order of proposers are random; some requests are preempted."""
    pipeline = bench.pipeline(either, num_blocks=20, control=RandomControl(0))
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(36)}
    for i, (name, size) in enumerate(sizes.items()):
        options: dict[str, Any] = {"spec": "off"} if i % 4 == 0 else {}
        pipeline.add(name, *size, **options)
        pipeline.step()
    pipeline.finish()
    assert {name: pipeline.outputs(name, *size[1:]) for name, size in sizes.items()} == {
        name: pipeline.expected(*size) for name, size in sizes.items()
    }
    assert {0, 1, 2, 3, 4} <= set(pipeline.lengths)
    verified, accepted = (sum(pipeline.total(f"{name}_per_position")) for name in ("verified", "accepted"))
    assert accepted > 20
    assert verified - accepted > 10


def nothing_is_kept(bench: Bench) -> None:
    """Half of the requests are aborted. A request that comes under a name of before is a new one."""
    pipeline, rng = bench.pipeline(either, control=RandomControl(0)), random.Random(1)
    for _ in range(2):
        for i in range(24):
            pipeline.add(f"r{i}", i, 5, 20)
            pipeline.step()
            if rng.random() < 0.5:
                pipeline.scheduler.finish_requests(f"r{rng.randrange(i + 1)}", RequestStatus.FINISHED_ABORTED)
        pipeline.finish()
        assert pipeline.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 59
        assert not holding(pipeline.scheduler, frozenset(f"r{i}" for i in range(24)), "scheduler")


def end_of_output(bench: Bench) -> None:
    pipeline = bench.pipeline(either)
    for i in range(8):
        pipeline.add(f"r{i}", i, 5, 20)
        pipeline.finish()
    assert max(start + planned for start, planned in pipeline.verified) == 19


def min_tokens(bench: Bench) -> None:
    bench.monkeypatch.setattr("vllm_spec_plugin.scheduling.native.holds_min_tokens_too_long", lambda config: True)
    """On V1 the token after accepted drafts could not be a stop token then. Lengths are random."""
    pipeline = bench.pipeline(either, control=RandomControl(0))
    for i, least in enumerate((1, 2, 6, 7, 8, 9, 30)):
        pipeline.add(f"r{i}", i, 5, 40, min_tokens=least)
        first = len(pipeline.verified)
        pipeline.finish()
        verified = pipeline.verified[first:]
        assert all(start >= least or start + planned < least for start, planned in verified if planned)
        assert any(planned for start, planned in verified if start >= least)


def only_running(bench: Bench) -> None:
    """A request is preempted between two steps, as `reset_prefix_cache` does it."""
    pipeline = bench.pipeline(either)
    pipeline.add("a", 1, 6, 38)
    while not pipeline.scheduler.requests["a"].num_output_tokens > 12:
        pipeline.step()
    pipeline.scheduler.reset_prefix_cache(reset_running_requests=True)
    first = len(pipeline.verified)
    output = pipeline.scheduler.schedule()
    assert not output.scheduled_spec_decode_tokens
    assert not pipeline.scheduler.requests["a"].spec_token_ids
    pipeline._running.append((output, pipeline._run(output)))
    pipeline._end()
    pipeline.finish()
    assert any(pipeline.lengths[first:])
    assert pipeline.outputs("a", 6, 38) == pipeline.expected(1, 6, 38)


def left_out(bench: Bench) -> None:
    """A step has room for one of two requests only; the device forgets the other's drafts, as V1 does its q."""
    pipeline = bench.pipeline(either)
    for name in "ab":
        pipeline.add(name, 1, 5, 30)
    while not all(pipeline.drafts.get(name) for name in "ab"):
        pipeline.step()
    budget, pipeline.scheduler.max_num_scheduled_tokens = pipeline.scheduler.max_num_scheduled_tokens, K + 1
    scheduled = set()
    for _ in range(3):
        output = pipeline.scheduler.schedule()
        scheduled |= output.num_scheduled_tokens.keys()
        for name in {"a", "b"} - output.num_scheduled_tokens.keys():
            pipeline.drafts.pop(name, None)
        pipeline._running.append((output, pipeline._run(output)))
        pipeline._end()
    pipeline.scheduler.max_num_scheduled_tokens = budget
    assert scheduled < {"a", "b"}
    pipeline.finish()
    for name in "ab":
        assert pipeline.outputs(name, 5, 30) == pipeline.expected(1, 5, 30)


def certain(bench: Bench) -> None:
    """The scheduler sends a token-only draft as token ids, of which the worker keeps no q; the others are its own."""
    pipeline = bench.pipeline(either)
    pipeline.add("a", 1, 6, 38)
    sent: list[int] = []
    while pipeline.scheduler.has_requests():
        output = pipeline.scheduler.schedule()
        sent += [token for own in output.scheduled_spec_decode_tokens.values() for token in own]
        pipeline._running.append((output, pipeline._run(output)))
        if len(pipeline._running) > pipeline._delay:
            pipeline._end()
    while pipeline._running:
        pipeline._end()
    has_ids, has_placeholders = any(token >= 0 for token in sent), any(token < 0 for token in sent)
    on_device = bench.kind.told([1]) == [-1] or bench.kind.is_async
    assert has_ids == ("suffix" in bench.methods or not on_device)
    assert has_placeholders == on_device


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


def tenants_apart(bench: Bench) -> None:
    """A tenant's next request drafts from the tenant's own finished response, and from no other tenant's."""
    pipeline = bench.pipeline(unpredictable)
    accepted: list[int] = []
    for salt in ("one", "two", "one"):
        before = pipeline.total("accepted_per_position")
        add(pipeline, f"r{len(accepted)}", 6, 24, {"extra_args": {"spec_method": "suffix"}}, cache_salt=salt)
        pipeline.finish()
        accepted.append(sum(pipeline.total("accepted_per_position")) - sum(before))
    assert accepted[:2] == [0, 0]
    assert accepted[2] > 10


def rests(bench: Bench) -> None:
    pipeline = run(bench, spec="off")
    assert pipeline.total("drafter_rests") > 60
    assert not pipeline.total("drafter_passes")
    # The last step's passes are sent with the next one's.
    passes, draft_tokens = (run(bench).total(name) for name in ("drafter_passes", "draft_tokens"))
    assert passes > 20
    assert draft_tokens > 20


def caught_up(bench: Bench) -> None:
    """Off for long in a fifth of the steps."""
    bench.monkeypatch.setattr(random_lengths, "_OFF_FOR_LONG", 0.2)
    pipeline = bench.pipeline(either, control=RandomControl(0))
    for i in range(8):
        pipeline.add(f"r{i}", i, 5, 30)
        pipeline.step()
    pipeline.finish()
    assert pipeline.total("stale_requests") > 8
    assert pipeline.total("caught_up_tokens") > 20


class Pausing(FixedControl):
    """Drafts in the first steps, and then no more."""

    is_constant, steps = False, 0

    def __init__(self) -> None:
        """Starts at the first step."""

    def begin_step(self, num_requests: int) -> bool:
        """Counts steps."""
        self.steps += 1
        return self.steps < 6


def switched_off(bench: Bench) -> None:
    pipeline = bench.pipeline(either, control=Pausing())
    pipeline.add("a", 1, 5, 30)
    pipeline.finish()
    assert pipeline.total("switched_off") == 1


def serve_many(bench: Bench, pipeline: Pipeline) -> None:
    """Serves 30 requests that overlap, in steps that are equally long for the policy."""
    bench.equal_steps(equal_clock())
    for i in range(30):
        pipeline.add(f"r{i}", i, 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()


def forecasts_counted(bench: Bench) -> None:
    """The policy `optimal` makes forecasts."""
    pipeline = bench.pipeline(either, policy="optimal")
    serve_many(bench, pipeline)
    assert [name for name in FORECASTS if not pipeline.total(name)] == []


def memory(bench: Bench) -> None:
    """A server leaves what it learned, and the next one of the same configuration begins with it."""
    bench.monkeypatch.setenv(memory_file.SWITCH, "1")
    bench.monkeypatch.setattr(memory_file, "EVERY_IDLE", 0.0)
    with TemporaryDirectory() as folder:
        section = {"policy": "optimal", "tokens": K, "memory": folder}
        pipeline = bench.pipeline(either, draft_length=section)
        before = np.concatenate(pipeline.control.acceptance)
        serve_many(bench, pipeline)
        after = np.concatenate(pipeline.control.acceptance)
        later = np.concatenate(bench.pipeline(either, draft_length=section).control.acceptance)
    # Positions with few tokens lean on those before them, more than before.
    assert 0 < abs(later - after).max() < abs(before - after).max() / 2


FORECASTS = ("predicted_seconds", "measured_seconds", "expected_saved_seconds", "realised_saved_seconds", "acceptance")
REQUESTS = {reason: partial(without_drafts, reason=reason) for reason in WITHOUT_DRAFTS}
CHECKS: dict[tuple[str, str], Callable[[Bench], None]] = {
    **{("request", reason): check for reason, check in REQUESTS.items()},
    ("option", "spec"): spec_off,
    ("option", "spec_tokens"): spec_tokens,
    ("option", "spec_method"): spec_method,
    ("option", "spec_prediction"): predictions,
    ("scheduling", "grammars"): grammars,
    ("scheduling", "continued"): continued,
    ("scheduling", "defaults"): defaults,
    ("scheduling", "switch"): switch_of_both,
    ("scheduling", "memory"): memory,
    ("scheduling", "outputs"): outputs,
    ("scheduling", "ended"): nothing_is_kept,
    ("scheduling", "end of output"): end_of_output,
    ("scheduling", "min_tokens"): min_tokens,
    ("scheduling", "not running"): only_running,
    ("scheduling", "left out"): left_out,
    ("scheduling", "tenants"): tenants_apart,
    ("scheduling", "rests"): rests,
    ("drafts", "certain"): certain,
    ("counter", "drafts"): drafts_counted,
    ("counter", "draft_tokens"): drafts_counted,
    ("counter", "proposer_errors"): errors_counted,
    ("counter", "proposer_seconds"): seconds_counted,
    ("counter", "verified_per_position"): positions_counted,
    ("counter", "verified_by_kind"): grammars,
    ("counter", "accepted_by_kind"): grammars,
    ("counter", "accepted_per_position"): positions_counted,
    ("counter", "ended"): ended_counted,
    ("counter", "chosen_lengths"): lengths_counted,
    ("counter", "without_drafts"): REQUESTS["resumable"],
    ("counter", "requests_without_salt"): salts_counted,
    ("counter", "drafter_passes"): rests,
    ("counter", "drafter_rests"): rests,
    ("counter", "stale_requests"): caught_up,
    ("counter", "caught_up_tokens"): caught_up,
    ("counter", "switched_off"): switched_off,
    ("counter", "max_draft_tokens"): switch_of_both,
    **{("counter", name): forecasts_counted for name in FORECASTS},
}
