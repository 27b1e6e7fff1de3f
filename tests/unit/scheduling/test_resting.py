"""Steps in which vLLM's drafter does not run, and the keys and values that its draft model has when it drafts again."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.outputs import ModelRunnerOutput

from tests.fixed_length import native as native_file
from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_pipelines import either
from vllm_spec_plugin.compat.resting import REST, DrafterAfterRest
from vllm_spec_plugin.messages import plan_of
from vllm_spec_plugin.policy.control import Off
from vllm_spec_plugin.policy.fixed import FixedControl
from vllm_spec_plugin.policy.random_lengths import RandomControl
from vllm_spec_plugin.scheduling import base, native

K, BLOCK = 4, 4
NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})


class Switched(FixedControl):
    """Drafts, or is off."""

    is_constant, is_off = False, False

    def begin_step(self, num_requests: int) -> bool:
        """Does what it is told."""
        return not self.is_off


class DraftModelPipeline(Pipeline):
    """A device whose draft model has keys and values in blocks; they are right if those of all tokens before are.

    Attributes:
        rests: of each step, whether the drafter rested.
        num_checked: number of drafts for which all keys and values were there.
        num_found: by request, its tokens that were in the prefix cache.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rests: list[bool] = []
        self.num_checked = 0
        self.num_found: dict[str, int] = {}
        self._tables: dict[str, list[int]] = {}
        # The text up to a token, by block and offset.
        self._kv: dict[tuple[int, int], tuple[int, ...] | None] = {}

    def _run(self, output: Any) -> ModelRunnerOutput:
        self._follow(output)
        before = self._computed | {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        before |= {
            name: computed
            for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if name in cached.resumed_req_ids
        }
        self.rests.append(rests := output.num_spec_tokens_to_schedule == REST)
        outcome = super()._run(output)
        # A block that is given to another request has other keys and values from the first write on.
        for name in output.num_scheduled_tokens:
            for position in range(before[name], self._computed[name]):
                self._kv[self._slot(name, position)] = None
        if rests:
            assert not plan_of(output).catch_up
            return outcome
        for name, (first, tokens) in plan_of(output).catch_up.items():
            assert tokens == self.texts[name][first : first + len(tokens)]
            assert first + len(tokens) <= before[name]
            self._write(name, first, first + len(tokens))
        for name in output.num_scheduled_tokens:
            self._write(name, before[name], self._computed[name])
        if self.scheduler._rest is None or self.scheduler._rest._after_rest is DrafterAfterRest.KEEPS_GAP:
            return outcome
        for name in self.scheduler._adapter.latest.draft_plans.keys() & outcome.req_id_to_index.keys():
            assert all(self._is_right(name, position) for position in range(self._computed[name])), name
            self.num_checked += 1
        return outcome

    def _follow(self, output: Any) -> None:
        for new in output.scheduled_new_reqs:
            self._tables[new.req_id] = list(new.block_ids[0])
            self.num_found[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, added in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if added is not None:
                known = [] if name in cached.resumed_req_ids else self._tables[name]
                self._tables[name] = [*known, *added[0]]

    def _slot(self, name: str, position: int) -> tuple[int, int]:
        return self._tables[name][position // BLOCK], position % BLOCK

    def _is_right(self, name: str, position: int) -> bool:
        return self._kv.get(self._slot(name, position)) == tuple(self.texts[name][: position + 1])

    def _write(self, name: str, first: int, stop: int) -> None:
        is_right = all(self._is_right(name, position) for position in range(first))
        for position in range(first, stop):
            self._kv[self._slot(name, position)] = tuple(self.texts[name][: position + 1]) if is_right else None


def make(
    monkeypatch: pytest.MonkeyPatch, control: Any, after: DrafterAfterRest | str, *, is_async: bool = False, **more: Any
) -> DraftModelPipeline:
    monkeypatch.setattr(native, "after_rest", lambda config: after)
    monkeypatch.setattr(native, "can_shorten", lambda config: True)
    monkeypatch.setattr(base, "create_control", lambda *_: control)
    scheduler = native.NativeAsyncScheduler if is_async else native.NativeScheduler
    return DraftModelPipeline(scheduler, Path(native_file(NGRAM, K)), either, delay=int(is_async), **more)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_draft_model_drafts_with_all_keys_and_values(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_async: bool
) -> None:
    """Seeds 0 to 2: random lengths and rests; few blocks, shared by four families of prompts, make preemptions."""
    rng = random.Random(seed)
    pipeline = make(monkeypatch, RandomControl(seed), DrafterAfterRest.CATCHES_UP, is_async=is_async, num_blocks=20)
    monkeypatch.setattr("vllm_spec_plugin.policy.random_lengths._OFF_FOR_LONG", 0.2)
    sizes = {f"r{i}": (i % 4, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(40)}
    for i, (name, size) in enumerate(sizes.items()):
        options: dict[str, Any] = {"spec": "off"} if i % 5 == 0 else {}
        pipeline.add(name, *size, **options)
        for _ in range(rng.randint(1, 5)):
            pipeline.step()
    pipeline.finish()
    assert {name: pipeline.outputs(name, *size[1:]) for name, size in sizes.items()} == {
        name: pipeline.expected(*size) for name, size in sizes.items()
    }
    assert sum(pipeline.rests) > 20
    assert pipeline.num_checked > 50
    counters = pipeline.counters["vllm"]
    assert counters.drafter_rests == sum(pipeline.rests)
    assert counters.caught_up_tokens > 50
    assert 0 < counters.stale_requests <= sum(pipeline.rests) * 3
    assert not pipeline.scheduler._rest.gaps.first


@pytest.mark.parametrize("after", list(DrafterAfterRest))
def test_a_drafter_rests_when_nobody_may_draft(monkeypatch: pytest.MonkeyPatch, after: DrafterAfterRest) -> None:
    """Also beside a policy that would draft; as soon as one request may, it runs."""
    pipeline = make(monkeypatch, Switched(), after)
    pipeline.add("a", 1, 6, 30, spec="off")
    for _ in range(5):
        pipeline.step()
    assert all(pipeline.rests)
    pipeline.add("b", 2, 6, 10)
    for _ in range(3):
        pipeline.step()
    assert not any(pipeline.rests[5:])
    counters = pipeline.counters["vllm"]
    assert counters.drafter_rests == 5
    pipeline.step()
    assert counters.drafter_passes == 3 * K
    pipeline.finish()
    assert sum(pipeline.rests) > 15


@pytest.mark.parametrize(
    ("after", "off", "runs"),
    [
        (DrafterAfterRest.AS_BEFORE, Off.NOT, 0),
        (DrafterAfterRest.CATCHES_UP, Off.NOT, 0),
        (DrafterAfterRest.KEEPS_GAP, Off.NOT, 4),
        (DrafterAfterRest.KEEPS_GAP, Off.SHORT, 1),
        (DrafterAfterRest.KEEPS_GAP, Off.LONG, 0),
        ("a reason", Off.LONG, 4),
    ],
)
def test_heads_rest_while_the_policy_is_off_and_others_whenever_nobody_drafts(
    monkeypatch: pytest.MonkeyPatch, after: DrafterAfterRest | str, off: Off, runs: int
) -> None:
    """While it is off for a short time, a head still computes prompts."""
    pipeline = make(monkeypatch, control := Switched(), after)
    control.is_off, control.off = True, off
    pipeline.add("a", 1, 6, 30)
    for _ in range(4):
        pipeline.step()
    assert pipeline.rests == [False] * runs + [True] * (4 - runs)
    pipeline.step()
    assert pipeline.counters["vllm"].drafter_passes == runs


def test_a_gap_that_a_pass_has_no_room_for_is_filled_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 tokens a pass: a prompt of 36 tokens takes two, after which the request drafts."""
    pipeline = make(monkeypatch, control := Switched(), DrafterAfterRest.CATCHES_UP)
    control.is_off = True
    pipeline.add("a", 1, 36, 11)
    for _ in range(4):
        pipeline.step()
    assert all(pipeline.rests)
    control.is_off = False
    pipeline.step()
    assert pipeline.scheduler._rest.gaps.first == {"a": 23}
    checked = [pipeline.num_checked]
    pipeline.step()
    assert not pipeline.scheduler._rest.gaps
    assert [*checked, pipeline.num_checked] == [0, 1]
    pipeline.finish()
    assert pipeline.outputs("a", 36, 11) == pipeline.expected(1, 36, 11)


@pytest.mark.parametrize(("option", "found"), [({}, 0), ({"spec": "off"}, 20)])
def test_blocks_that_a_head_lacks_serve_one_more_request_that_may_draft(
    monkeypatch: pytest.MonkeyPatch, option: dict[str, Any], found: int
) -> None:
    """The second request finds 20 tokens of the first one, which had no drafts; the third one if nobody drafted."""
    pipeline = make(monkeypatch, Switched(), DrafterAfterRest.KEEPS_GAP)
    for name, options in (("a", {"spec": "off"}), ("b", option), ("c", {})):
        pipeline.add(name, 1, 22, 4, **options)
        pipeline.finish()
    assert pipeline.num_found == {"a": 0, "b": 20, "c": found}
    assert not pipeline.scheduler._rest.gaps.first
