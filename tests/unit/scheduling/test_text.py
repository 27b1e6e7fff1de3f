"""vLLM's scheduler with drafts from texts, without a model: no text changes, whatever is drafted."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import RequestStatus

import vllm_spec_plugin
from tests.engine.lengths import RandomControl
from tests.unit.scheduling.cases import FULL, MAX_MODEL_LEN, prompt, request, scheduler_over
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.scheduling import text as module
from vllm_spec_plugin.scheduling.text import TextScheduler

K = 4
SUFFIX: dict[str, Any] = {"method": "suffix", "min_order": 1}
CASCADE = {"method": "cascade", "proposers": [{"method": "prediction"}, SUFFIX]}


def next_token(text: list[int]) -> int:
    """What the target would output after a text: passages that repeat, now and then another token."""
    return len(text) % 7 if len(text) % 11 else len(text)


class Core:
    """An engine core: the scheduler, and a device that verifies the tokens which the scheduler sends."""

    def __init__(self, folder: Path, proposer: dict[str, Any], num_blocks: int = 60) -> None:
        from vllm.engine.arg_utils import EngineArgs

        path = folder / "plugin.yaml"
        path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": K}}))
        config = EngineArgs(
            model=str(model_path("target")),
            dtype="float32",
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=4,
            max_num_batched_tokens=24,
            enable_prefix_caching=True,
            speculative_config=vllm_spec_plugin.speculative_config(path),
        ).create_engine_config()
        self.scheduler: Any = scheduler_over(TextScheduler, config, num_blocks, FULL)
        self.scheduler.counters_seconds = 0.0
        self.texts: dict[str, list[int]] = {}
        self.counters: dict[str, StepCounters] = {}
        self._computed: dict[str, int] = {}

    def add(self, name: str, family: int, num_tokens: int, max_tokens: int, **options: Any) -> None:
        self.texts[name] = prompt(family, num_tokens)
        self.scheduler.add_request(request(name, self.texts[name], max_tokens, options or None))

    def step(self) -> None:
        output = self.scheduler.schedule()
        for new in output.scheduled_new_reqs:
            self._computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            if name in cached.resumed_req_ids:
                self._computed[name] = computed
        sampled: dict[str, list[int]] = {name: [] for name in output.num_scheduled_tokens}
        for name, count in output.num_scheduled_tokens.items():
            text, drafts = self.texts[name], output.scheduled_spec_decode_tokens.get(name, [])
            self._computed[name] += count - len(drafts)
            if self._computed[name] < len(text):
                continue
            for draft in [*drafts, None]:
                sampled[name].append(next_token(text))
                text.append(sampled[name][-1])
                self._computed[name] = len(text) - 1
                if draft != sampled[name][-1]:
                    break
        names = list(sampled)
        index = {name: i for i, name in enumerate(names)}
        outcome = ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=list(sampled.values()))
        for answer in self.scheduler.update_from_output(output, outcome).values():
            carried = answer.scheduler_stats and answer.scheduler_stats.kv_connector_stats
            for payload in (carried or {}).get("vllm_spec_plugin", ()):
                counted = StepCounters.from_payload(payload)
                self.counters.setdefault(counted.method, StepCounters(counted.method)).add(counted)
        # What a worker without a drafter sends.
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[0] * K for _ in names]))

    def finish(self) -> None:
        while self.scheduler.has_requests():
            self.step()


def expected(family: int, num_prompt: int, max_tokens: int) -> list[int]:
    text = prompt(family, num_prompt)
    while len(text) < min(num_prompt + max_tokens, MAX_MODEL_LEN):
        text.append(next_token(text))
    return text


@pytest.mark.parametrize("num_blocks", [60, 20], ids=["roomy", "preempting"])
def test_texts_are_those_without_drafts_at_random_lengths(
    num_blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_control", lambda *_: RandomControl())
    core = Core(tmp_path, SUFFIX, num_blocks)
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(16)}
    for i, (name, size) in enumerate(sizes.items()):
        options: dict[str, Any] = {"spec": "off"} if i % 4 == 0 else {}
        core.add(name, *size, **options)
        core.step()
    core.finish()
    for name, size in sizes.items():
        assert core.texts[name] == expected(*size)
    counted = core.counters["suffix"]
    assert sum(counted.accepted_per_position) > 30
    assert sum(counted.verified_per_position) - sum(counted.accepted_per_position) > 10
    assert counted.draft_tokens >= sum(counted.verified_per_position)


def test_nothing_is_left_of_requests_that_have_ended(tmp_path: Path) -> None:
    core, rng = Core(tmp_path, SUFFIX), random.Random(1)
    for i in range(24):
        core.add(f"r{i}", i, 5, 20)
        core.step()
        if rng.random() < 0.5:
            core.scheduler.finish_requests(f"r{rng.randrange(i + 1)}", RequestStatus.FINISHED_ABORTED)
    core.finish()
    assert core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 59
    assert not core.scheduler._drafts._texts
    assert not core.scheduler._adapter._limits


def test_a_prediction_is_drafted_first_and_then_what_the_text_repeats(tmp_path: Path) -> None:
    core = Core(tmp_path, CASCADE)
    predicted = expected(1, 5, 15)[5:]
    core.add("predicted", 1, 5, 40, spec_prediction=predicted)
    core.finish()
    assert core.texts["predicted"] == expected(1, 5, 40)
    assert sum(core.counters["prediction"].accepted_per_position) > 8
    assert sum(core.counters["suffix"].accepted_per_position) > 3


def test_a_proposer_that_raises_costs_drafts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(tmp_path, SUFFIX)

    def fail(requests: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(core.scheduler._drafts._proposers[0]._proposer, "propose", fail)
    core.add("a", 1, 5, 30)
    core.finish()
    assert core.texts["a"] == expected(1, 5, 30)
    assert core.counters["suffix"].proposer_errors
    assert not core.counters["suffix"].drafts


def test_no_draft_goes_beyond_the_last_output_token(tmp_path: Path) -> None:
    core = Core(tmp_path, SUFFIX)
    core.add("a", 1, 5, 30)
    core.finish()
    assert len(core.texts["a"]) == 35
