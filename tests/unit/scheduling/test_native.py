"""vLLM's schedulers with draft lengths for its own drafters, without a model: no text changes, whatever is drafted."""

import copy
import json
import random
from collections import deque
from typing import Any

import pytest
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import RequestStatus

import vllm_spec_plugin
from tests.engine.lengths import RandomControl, equal_clock
from tests.fixed_length import native
from tests.unit.scheduling.cases import FULL, MAX_MODEL_LEN, prompt, request, scheduler_over
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.scheduling import native as module
from vllm_spec_plugin.scheduling import native_adapter
from vllm_spec_plugin.scheduling.mixed import MixedScheduler
from vllm_spec_plugin.scheduling.native import NativeAsyncScheduler, NativeScheduler

K = 4
NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})
KINDS = {"sync": (NativeScheduler, 0), "async": (NativeAsyncScheduler, 1)}
MIXED = {"mixed": (MixedScheduler, 0)}


def next_token(text: list[int]) -> int:
    """What the target would output after a text."""
    return (sum(text[-3:]) * 31 + len(text)) % 1000


class Pipeline:
    """An engine core: a scheduler, and a device that runs steps whose outcome the scheduler learns later.

    Attributes:
        scheduler: ours.
        texts: by request, its prompt and output, as the device has them.
        verified: by step and request that was sampled, its output tokens before and its scheduled draft tokens.
    """

    def __init__(
        self, kind: str, num_blocks: int = 60, policy: str = "fixed", can_shorten: bool = True, path: str = ""
    ) -> None:
        from vllm.engine.arg_utils import EngineArgs

        scheduler_cls, self._delay = (KINDS | MIXED)[kind]
        config = EngineArgs(
            model=str(model_path("target")),
            dtype="float32",
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=4,
            max_num_batched_tokens=24,
            enable_prefix_caching=True,
            speculative_config=vllm_spec_plugin.speculative_config(path or native(NGRAM, K, policy)),
        ).create_engine_config()
        config = copy.copy(config)
        config.scheduler_config.async_scheduling = kind == "async"
        self.scheduler: Any = scheduler_over(scheduler_cls, config, num_blocks, FULL)
        self.scheduler._can_shorten = can_shorten
        self.scheduler.counters_seconds = 0.0
        self.texts: dict[str, list[int]] = {}
        self.verified: list[tuple[int, int]] = []
        self.counters = StepCounters("vllm")
        self._num_prompt: dict[str, int] = {}
        self._computed: dict[str, int] = {}
        self._drafts: dict[str, list[int]] = {}
        self._rng = random.Random(0)
        self._running: deque[tuple[Any, ModelRunnerOutput]] = deque()

    @property
    def lengths(self) -> list[int]:
        """Numbers of draft tokens that were scheduled, all requests together."""
        return [planned for _, planned in self.verified]

    def add(self, name: str, family: int, num_tokens: int, max_tokens: int, **options: Any) -> None:
        min_tokens = options.pop("min_tokens", 0)
        self.texts[name] = prompt(family, num_tokens)
        self._num_prompt[name] = num_tokens
        new = request(name, self.texts[name], max_tokens, options or None)
        new.sampling_params.min_tokens = min_tokens
        self.scheduler.add_request(new)

    def step(self) -> None:
        output = self.scheduler.schedule()
        self._running.append((output, self._run(output)))
        if len(self._running) > self._delay:
            self._end()

    def finish(self) -> None:
        while self.scheduler.has_requests():
            self.step()
        while self._running:
            self._end()

    def _run(self, output: Any) -> ModelRunnerOutput:
        """Runs a step on the device: verifies the drafts of the step before, and drafts."""
        for new in output.scheduled_new_reqs:
            self._computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            if name in cached.resumed_req_ids:
                self._computed[name] = computed
        sampled: dict[str, list[int]] = {}
        for name, count in output.num_scheduled_tokens.items():
            text, scheduled = self.texts[name], output.scheduled_spec_decode_tokens.get(name, ())
            drafts, planned = self._drafts.pop(name, []), len(scheduled)
            # Placeholders stand for the device's own drafts.
            if scheduled and scheduled[0] >= 0:
                drafts = list(scheduled)
            assert planned <= len(drafts), "a placeholder without a draft"
            sampled[name] = []
            self._computed[name] += count - planned
            assert self._computed[name] <= len(text), "positions after the text"
            if self._computed[name] < len(text):
                continue
            self.verified.append((len(text) - self._num_prompt[name], planned))
            for draft in [*drafts[:planned], None]:
                sampled[name].append(next_token(text))
                text.append(sampled[name][-1])
                self._computed[name] = len(text) - 1
                if draft != sampled[name][-1]:
                    break
            guess = list(text)
            for _ in range(output.num_spec_tokens_to_schedule):
                guess.append(next_token(guess) if self._rng.random() < 0.7 else 0)
            self._drafts[name] = guess[len(text) :]
        names = list(sampled)
        index = {name: i for i, name in enumerate(names)}
        return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=list(sampled.values()))

    def _end(self) -> None:
        """Tells the scheduler a step's outcome."""
        output, outcome = self._running.popleft()
        for answer in self.scheduler.update_from_output(output, outcome).values():
            carried = answer.scheduler_stats and answer.scheduler_stats.kv_connector_stats
            for counted in (carried or {}).get("vllm_spec_plugin", ()):
                self.counters.add(StepCounters.from_payload(counted))
        if not self._delay:
            # V1 tells its drafts, V2 how many there are.
            drafts = {name: self.told(self._drafts.get(name, [])) for name in outcome.req_ids}
            self.scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))

    def told(self, drafts: list[int]) -> list[int]:
        return list(drafts)


def outputs_of(pipeline: Pipeline, name: str, num_prompt: int, max_tokens: int) -> list[int]:
    """The request's output, in which the device may have run ahead of the end."""
    return pipeline.texts[name][num_prompt : min(num_prompt + max_tokens, MAX_MODEL_LEN)]


def expected(family: int, num_prompt: int, max_tokens: int) -> list[int]:
    text = prompt(family, num_prompt)
    while len(text) < min(num_prompt + max_tokens, MAX_MODEL_LEN):
        text.append(next_token(text))
    return text[num_prompt:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_blocks", [60, 20], ids=["roomy", "preempting"])
def test_texts_are_those_without_drafts_at_random_lengths(
    kind: str, num_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline = Pipeline(kind, num_blocks)
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(16)}
    for i, (name, (family, num_prompt, max_tokens)) in enumerate(sizes.items()):
        pipeline.add(name, family, num_prompt, max_tokens, **({"spec": "off"} if i % 4 == 0 else {}))
        pipeline.step()
    pipeline.finish()
    for name, (family, num_prompt, max_tokens) in sizes.items():
        assert outputs_of(pipeline, name, num_prompt, max_tokens) == expected(family, num_prompt, max_tokens)
    assert {0, 1, 2, 3, 4} == set(pipeline.lengths)
    assert sum(pipeline.counters.verified_per_position) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_aborted_requests_take_nothing_with_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline, rng = Pipeline(kind), random.Random(1)
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
    pipeline = Pipeline(kind)
    pipeline.add("a", 1, 5, 30, spec_tokens=2)
    pipeline.finish()
    assert max(pipeline.lengths) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["fixed", "optimal"])
def test_no_draft_reaches_min_tokens(kind: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On V1 the token after accepted drafts could not be a stop token then."""
    if policy == "optimal":
        monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    pipeline = Pipeline(kind)
    for i, least in enumerate((1, 2, 6, 7, 8, 9, 30)):
        pipeline.add(f"r{i}", i, 5, 40, min_tokens=least)
        first = len(pipeline.verified)
        pipeline.finish()
        verified = pipeline.verified[first:]
        assert all(start >= least or start + planned < least for start, planned in verified if planned)
        assert any(planned for start, planned in verified if start >= least)
        assert least < 6 or any(planned for start, planned in verified if start < least)
        assert outputs_of(pipeline, f"r{i}", 5, 40) == expected(i, 5, 40)
    assert not pipeline.scheduler._adapter._to_bound


def test_no_draft_goes_beyond_the_last_output_token() -> None:
    """Where an outcome is known before its drafts."""
    pipeline = Pipeline("sync")
    for i in range(8):
        pipeline.add(f"r{i}", i, 5, 20)
        pipeline.finish()
    assert max(start + planned for start, planned in pipeline.verified) == 19


@pytest.mark.parametrize("kind", KINDS)
def test_with_spec_off_for_all_nothing_is_drafted(kind: str) -> None:
    pipeline = Pipeline(kind)
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
    pipeline = Pipeline(kind, can_shorten=False)
    pipeline.add("a", 1, 5, 30)
    pipeline.step()
    assert len(pipeline._drafts["a"]) == K
    pipeline.finish()
    assert min(pipeline.lengths[1:]) < K
    assert outputs_of(pipeline, "a", 5, 30) == expected(1, 5, 30)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimal_policy_learns_acceptance_from_late_outcomes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are equally long for it, so that it drafts much."""
    monkeypatch.setattr(native_adapter, "time", equal_clock())
    pipeline = Pipeline(kind, policy="optimal")
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
    pipeline = Pipeline("async")
    pipeline.add("a", 1, 5, 40)
    with pytest.raises(AssertionError, match="a placeholder without a draft"):
        pipeline.finish()
