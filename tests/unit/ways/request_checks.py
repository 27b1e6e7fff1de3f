"""Checks of rules about requests, their options and their outputs, each on one way to draft without a model."""

import random
from typing import Any

import torch
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.request import Request, RequestStatus

from tests.engine.books import holding
from tests.engine.lengths import equal_clock
from tests.unit.scheduling.cases import prompt
from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_pipelines import either
from tests.ways.pipelines import Bench, K, add
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.policy.random_lengths import RandomControl

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
