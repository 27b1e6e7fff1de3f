"""Texts before one of vLLM's drafters: no text changes, whoever drafts, and each is credited with its own drafts."""

import json
import random
from pathlib import Path

import pytest
import yaml

from tests.engine.lengths import RandomControl, equal_clock
from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_native import NGRAM, K
from vllm_spec_plugin.scheduling import native, native_adapter
from vllm_spec_plugin.scheduling.mixed import MixedScheduler

PERIOD = 9


def next_token(text: list[int]) -> int:
    """Half of the texts repeat themselves; of the others only the drafter knows how they go on."""
    return len(text) % PERIOD if text[0] % 200 else (sum(text[-3:]) * 31 + len(text)) % 1000


class Mixed(Pipeline):
    """One that tells its drafts, as the V1 runner does."""

    def __init__(self, path: str, num_blocks: int = 60) -> None:
        super().__init__(MixedScheduler, path, next_token, num_blocks)


class Placeholders(Mixed):
    """Tells how many drafts there are, as the V2 runner does."""

    def told(self, drafts: list[int]) -> list[int]:
        return [-1] * len(drafts)


@pytest.fixture
def path(tmp_path: Path) -> str:
    drafter = {"method": "vllm", "config": json.loads(NGRAM)}
    proposer = {"method": "cascade", "proposers": [{"method": "suffix", "min_order": 2}, drafter]}
    file = tmp_path / "plugin.yaml"
    file.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "optimal", "tokens": K}}))
    return str(file)


@pytest.mark.parametrize("kind", [Mixed, Placeholders], ids=["ids", "placeholders"])
@pytest.mark.parametrize("num_blocks", [60, 20], ids=["roomy", "preempting"])
def test_texts_are_those_without_drafts_at_random_lengths_and_orders(
    kind: type[Mixed], num_blocks: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "create_control", lambda *_: RandomControl())
    pipeline = kind(path, num_blocks)
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(16)}
    for i, (name, (family, num_prompt, max_tokens)) in enumerate(sizes.items()):
        pipeline.add(name, family, num_prompt, max_tokens, **({"spec": "off"} if i % 4 == 0 else {}))
        pipeline.step()
    pipeline.finish()
    for name, (family, num_prompt, max_tokens) in sizes.items():
        assert pipeline.outputs(name, num_prompt, max_tokens) == pipeline.expected(family, num_prompt, max_tokens)
    assert not pipeline.scheduler._texts._texts


def test_each_is_credited_with_its_own_drafts(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter is right with probability 0.7, texts of period 9 nearly always once they have repeated."""
    monkeypatch.setattr(native_adapter, "time", equal_clock())
    pipeline, rng = Placeholders(path), random.Random(0)
    for i in range(40):
        pipeline.add(f"r{i}", rng.randrange(8), 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()
    (suffix, *_), (drafter, *_) = pipeline.scheduler._adapter.control.acceptance
    assert suffix > 0.8
    assert drafter == pytest.approx(0.7, abs=0.15)
