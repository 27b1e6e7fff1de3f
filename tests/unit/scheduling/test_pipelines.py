"""vLLM's schedulers with drafts of vLLM's drafters, of texts, or both, without a model: no text changes."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.engine.lengths import equal_clock
from tests.unit.scheduling.pipeline import Pipeline
from vllm_spec_plugin.proposers import cascade
from vllm_spec_plugin.scheduling import adapter, native
from vllm_spec_plugin.scheduling.native import NativeAsyncScheduler, NativeScheduler
from vllm_spec_plugin.scheduling.token_only import TokenOnlyScheduler

K = 4
NGRAM = {"method": "vllm", "config": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}}
SUFFIX = {"method": "suffix", "min_order": 1}
MIXED = {"method": "cascade", "proposers": [{"method": "suffix", "min_order": 2}, NGRAM]}


def unpredictable(text: list[int]) -> int:
    return (sum(text[-3:]) * 31 + len(text)) % 1000


def repeating(text: list[int]) -> int:
    """Passages that repeat, now and then another token."""
    return len(text) % 7 if len(text) % 11 else len(text)


def either(text: list[int]) -> int:
    """Half of the texts repeat themselves; of the others only the drafter knows how they go on."""
    return len(text) % 9 if text[0] % 200 else unpredictable(text)


class Kind(NamedTuple):
    """A scheduler, its proposer, and what stands for the device.

    Attributes:
        delay: see `Pipeline`.
        told: the scheduler is told a request's drafts; their number, as by the V2 runner; or what is no draft at all.
        is_async: see `Pipeline`.
    """

    scheduler: type
    proposer: dict[str, Any]
    next_token: Callable[[list[int]], int]
    delay: int = 0
    told: Callable[[list[int]], list[int]] = list
    is_async: bool | None = None


def placeholders(drafts: list[int]) -> list[int]:
    return [-1] * len(drafts)


KINDS = {
    "sync": Kind(NativeScheduler, NGRAM, unpredictable),
    "async": Kind(NativeAsyncScheduler, NGRAM, unpredictable, 1),
    "text": Kind(TokenOnlyScheduler, SUFFIX, repeating, told=lambda drafts: [0] * K),
    "text, two stages": Kind(TokenOnlyScheduler, SUFFIX, repeating, 1, is_async=False),
    "mixed": Kind(NativeScheduler, MIXED, either),
    "mixed on V2": Kind(NativeScheduler, MIXED, either, told=placeholders),
}
natives = pytest.mark.parametrize("kind", ["sync", "async"])
Make = Callable[..., Pipeline]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str, num_blocks: int = 60, policy: str = "fixed", **changes: Any) -> Pipeline:
        kind = KINDS[name]._replace(**changes)
        path = tmp_path / "plugin.yaml"
        path.write_text(yaml.safe_dump({"proposer": kind.proposer, "draft_length": {"policy": policy, "tokens": K}}))
        return Pipeline(kind.scheduler, path, kind.next_token, num_blocks, *kind[3:5], is_async=kind.is_async)

    return made


@pytest.mark.parametrize("num_blocks", [60, 20], ids=["roomy", "preempting"])
def test_with_two_stages_outputs_are_those_without_drafts(num_blocks: int, make: Make) -> None:
    pipeline = make("text, two stages", num_blocks, "random")
    sizes = {f"r{i}": (i, 3 + 5 * i % 26, 4 + 7 * i % 30) for i in range(24)}
    for i, (name, size) in enumerate(sizes.items()):
        options: dict[str, Any] = {"spec": "off"} if i % 4 == 0 else {}
        pipeline.add(name, *size, **options)
        pipeline.step()
    pipeline.finish()
    for name, size in sizes.items():
        assert pipeline.outputs(name, *size[1:]) == pipeline.expected(*size)
    assert {0, 1, 2, 3, 4} == set(pipeline.lengths)
    verified, accepted = (
        sum(sum(getattr(each, f"{what}_per_position")) for each in pipeline.counters.values())
        for what in ("verified", "accepted")
    )
    assert accepted > 20
    assert verified - accepted > 10


@natives
def test_where_the_drafter_cannot_draft_less_only_placeholders_are_cut(
    kind: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with replicas, whose drafters do not rest either."""
    monkeypatch.setattr(native, "can_shorten", lambda config: False)
    monkeypatch.setattr(native, "after_rest", lambda config: "replicas run in step")
    pipeline = make(kind, policy="random")
    pipeline.add("a", 1, 5, 30)
    for _ in range(5):
        pipeline.step()
        assert len(pipeline.drafts["a"]) == K
    pipeline.finish()
    assert min(pipeline.lengths[1:]) < K
    assert pipeline.outputs("a", 5, 30) == pipeline.expected(1, 5, 30)


@natives
def test_the_optimal_policy_learns_acceptance_from_late_outcomes(
    kind: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are equally long for it, so that it drafts much."""
    monkeypatch.setattr(adapter, "time", equal_clock())
    pipeline = make(kind, policy="optimal")
    for i in range(40):
        pipeline.add(f"r{i}", i, 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()
    assert pipeline.control.acceptance[0][0] == pytest.approx(0.7, abs=0.12)


def test_each_proposer_is_credited_with_its_own_drafts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter is right with probability 0.7, texts of period 9 nearly always once they have repeated."""
    monkeypatch.setattr(adapter, "time", equal_clock())
    monkeypatch.setattr(cascade, "time", equal_clock(1e-5))
    pipeline, rng = make("mixed on V2", policy="optimal"), random.Random(0)
    for i in range(40):
        pipeline.add(f"r{i}", rng.randrange(8), 3, 40)
        for _ in range(6):
            pipeline.step()
    pipeline.finish()
    (suffix, *_), (drafter, *_) = pipeline.control.acceptance
    assert suffix > 0.8
    assert drafter == pytest.approx(0.7, abs=0.15)
