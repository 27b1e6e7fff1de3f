"""vLLM's schedulers with draft lengths for its own drafters, without a model: no text changes, whatever is drafted."""

import json
import random

import pytest
from vllm.v1.request import RequestStatus

from tests.engine.lengths import RandomControl, equal_clock
from tests.fixed_length import native
from tests.unit.scheduling.pipeline import Pipeline
from vllm_spec_plugin.scheduling import native as module
from vllm_spec_plugin.scheduling import native_adapter
from vllm_spec_plugin.scheduling.native import NativeAsyncScheduler, NativeScheduler

K = 4
NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})
KINDS = {"sync": (NativeScheduler, 0), "async": (NativeAsyncScheduler, 1)}


def next_token(text: list[int]) -> int:
    """What the target would output after a text."""
    return (sum(text[-3:]) * 31 + len(text)) % 1000


class Native(Pipeline):
    """One with vLLM's n-gram drafter, for which the device's own drafts stand."""

    def __init__(self, kind: str, num_blocks: int = 60, policy: str = "fixed", can_shorten: bool = True) -> None:
        scheduler_cls, delay = KINDS[kind]
        super().__init__(scheduler_cls, native(NGRAM, K, policy), next_token, num_blocks, delay)
        self.scheduler._can_shorten = can_shorten


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_blocks", [60, 20], ids=["roomy", "preempting"])
def test_texts_are_those_without_drafts_at_random_lengths(
    kind: str, num_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline = Native(kind, num_blocks)
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(16)}
    for i, (name, (family, num_prompt, max_tokens)) in enumerate(sizes.items()):
        pipeline.add(name, family, num_prompt, max_tokens, **({"spec": "off"} if i % 4 == 0 else {}))
        pipeline.step()
    pipeline.finish()
    for name, (family, num_prompt, max_tokens) in sizes.items():
        assert pipeline.outputs(name, num_prompt, max_tokens) == pipeline.expected(family, num_prompt, max_tokens)
    assert {0, 1, 2, 3, 4} == set(pipeline.lengths)
    assert sum(pipeline.counters["vllm"].verified_per_position) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_aborted_requests_take_nothing_with_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline, rng = Native(kind), random.Random(1)
    for i in range(24):
        pipeline.add(f"r{i}", i, 5, 20)
        pipeline.step()
        if rng.random() < 0.5:
            pipeline.scheduler.finish_requests(f"r{rng.randrange(i + 1)}", RequestStatus.FINISHED_ABORTED)
    pipeline.finish()
    assert pipeline.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 59
    assert not pipeline.scheduler._adapter._limits


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_gets_no_more_drafts_than_it_allows(kind: str) -> None:
    pipeline = Native(kind)
    pipeline.add("a", 1, 5, 30, spec_tokens=2)
    pipeline.finish()
    assert max(pipeline.lengths) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["fixed", "optimal"])
def test_no_draft_reaches_min_tokens(kind: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On V1 the token after accepted drafts could not be a stop token then."""
    if policy == "optimal":
        monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline = Native(kind)
    for i, least in enumerate((1, 2, 6, 7, 8, 9, 30)):
        pipeline.add(f"r{i}", i, 5, 40, min_tokens=least)
        first = len(pipeline.verified)
        pipeline.finish()
        verified = pipeline.verified[first:]
        assert all(start >= least or start + planned < least for start, planned in verified if planned)
        assert any(planned for start, planned in verified if start >= least)
        assert least < 6 or any(planned for start, planned in verified if start < least)
        assert pipeline.outputs(f"r{i}", 5, 40) == pipeline.expected(i, 5, 40)
    assert not pipeline.scheduler._adapter._to_bound


def test_no_draft_goes_beyond_the_last_output_token() -> None:
    """Where an outcome is known before its drafts."""
    pipeline = Native("sync")
    for i in range(8):
        pipeline.add(f"r{i}", i, 5, 20)
        pipeline.finish()
    assert max(start + planned for start, planned in pipeline.verified) == 19


@pytest.mark.parametrize("kind", KINDS)
def test_with_spec_off_for_all_nothing_is_drafted(kind: str) -> None:
    pipeline = Native(kind)
    pipeline.add("a", 1, 5, 30, spec="off")
    pipeline.step()
    assert not pipeline._drafts["a"]
    pipeline.finish()
    assert set(pipeline.lengths) == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_drafter_cannot_draft_less_only_placeholders_are_cut(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline = Native(kind, can_shorten=False)
    pipeline.add("a", 1, 5, 30)
    pipeline.step()
    assert len(pipeline._drafts["a"]) == K
    pipeline.finish()
    assert min(pipeline.lengths[1:]) < K
    assert pipeline.outputs("a", 5, 30) == pipeline.expected(1, 5, 30)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimal_policy_learns_acceptance_from_late_outcomes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are equally long for it, so that it drafts much."""
    monkeypatch.setattr(native_adapter, "time", equal_clock())
    pipeline = Native(kind, policy="optimal")
    for i in range(40):
        pipeline.add(f"r{i}", i, 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()
    assert pipeline.scheduler._adapter.control.acceptance[0][0] == pytest.approx(0.7, abs=0.12)
    assert pipeline.scheduler._adapter.control.step_cost.num_observations > 50


def test_a_placeholder_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    length = NativeScheduler._length
    monkeypatch.setattr(NativeScheduler, "_length", lambda self, turns, name: min(length(self, turns, name) + 1, K))
    pipeline = Native("async")
    pipeline.add("a", 1, 5, 40)
    with pytest.raises(AssertionError, match="a placeholder without a draft"):
        pipeline.finish()
