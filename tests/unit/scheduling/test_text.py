"""vLLM's scheduler with drafts from texts, without a model: no text changes, whatever is drafted."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm.v1.request import RequestStatus

from tests.engine.lengths import RandomControl
from tests.unit.scheduling.pipeline import Pipeline
from vllm_spec_plugin.scheduling import text as module
from vllm_spec_plugin.scheduling.text import TextScheduler

K = 4
SUFFIX: dict[str, Any] = {"method": "suffix", "min_order": 1}
CASCADE = {"method": "cascade", "proposers": [{"method": "prediction"}, SUFFIX]}


def next_token(text: list[int]) -> int:
    """What the target would output after a text: passages that repeat, now and then another token."""
    return len(text) % 7 if len(text) % 11 else len(text)


class Core(Pipeline):
    """One whose worker has no drafter: the scheduler sends tokens."""

    def __init__(self, folder: Path, proposer: dict[str, Any], num_blocks: int = 60) -> None:
        path = folder / "plugin.yaml"
        path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": K}}))
        super().__init__(TextScheduler, path, next_token, num_blocks)

    def told(self, drafts: list[int]) -> list[int]:
        return [0] * K


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
        assert core.outputs(name, *size[1:]) == core.expected(*size)
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
    predicted = core.expected(1, 5, 15)
    core.add("predicted", 1, 5, 40, spec_prediction=predicted)
    core.finish()
    assert core.outputs("predicted", 5, 40) == core.expected(1, 5, 40)
    assert sum(core.counters["prediction"].accepted_per_position) > 8
    assert sum(core.counters["suffix"].accepted_per_position) > 3


def test_a_proposer_that_raises_costs_drafts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(tmp_path, SUFFIX)

    def fail(requests: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(core.scheduler._drafts._proposers[0]._proposer, "propose", fail)
    core.add("a", 1, 5, 30)
    core.finish()
    assert core.outputs("a", 5, 30) == core.expected(1, 5, 30)
    assert core.counters["suffix"].proposer_errors
    assert not core.counters["suffix"].drafts


def test_no_draft_goes_beyond_the_last_output_token(tmp_path: Path) -> None:
    core = Core(tmp_path, SUFFIX)
    core.add("a", 1, 5, 30)
    core.finish()
    assert len(core.texts["a"]) == 35
