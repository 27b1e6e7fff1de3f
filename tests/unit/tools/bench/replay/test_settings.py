"""Policies in settings, and what their mechanisms gain."""

import statistics

from tests.unit.tools.bench.replay.cases import recording
from vllm_spec_plugin.tools.bench.arms import NONE
from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS, ablate
from vllm_spec_plugin.tools.bench.replay.settings import OFF, arms_of, replay
from vllm_spec_plugin.tools.bench.replay.sizes import Sizes

SIZES = Sizes(40, 30, 2)


def test_the_policy_is_compared_with_none_fixed_lengths_and_each_proposer_alone() -> None:
    one = recording()
    arms = {arm.name: arm for arm in arms_of(one)}
    optimal = [name for name in arms if name.startswith("optimal")]
    assert optimal == ["optimal", "optimal, ngram", "optimal, draft_model"]
    assert {NONE, OFF, "fixed K = 4", "fixed K = 4, draft_model"} <= arms.keys()
    # More was not recorded.
    assert "fixed K = 8" not in arms
    speeds = {
        name: statistics.median(found["tokens_per_second"] for found in replay(one, arms[name], "easy", 1, SIZES))
        for name in (NONE, "fixed K = 4, draft_model", "optimal")
    }
    assert speeds["fixed K = 4, draft_model"] > 1.5 * speeds[NONE]
    assert speeds["optimal"] > speeds[NONE]


def test_every_mechanism_can_be_switched_off_and_is_back_afterwards() -> None:
    one = recording()
    gains = {name: ablate(one, "mixed", 2, SIZES, name) for name in MECHANISMS}
    # A mechanism that is no longer where it was would raise; one that is not switched off gains exactly nothing.
    assert any(map(any, gains.values()))
    assert {name: ablate(one, "mixed", 2, SIZES, name) for name in MECHANISMS} == gains
