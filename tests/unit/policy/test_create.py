"""Tests the policy that a configuration creates, for one proposer and several."""

import importlib
from collections import Counter
from collections.abc import Mapping
from pkgutil import iter_modules

import pytest

from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.draft_plan import length_of
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.policy.control import Drafting, DraftRequest, MeasuredStep, StepBatch
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.policy.optimal import OptimalControl

NAME = "vllm_spec_plugin.policy"
NGRAM = {"method": "ngram"}
TREE = {"method": "medusa", "model": str(model_path("medusa")), "tree": [[0], [1], [0, 0], [1, 0]]}
CASCADE = {"method": "cascade", "proposers": [NGRAM, TREE]}
BATCH = StepBatch(1, 1, 100, 100)


def config(proposer: Mapping[str, object], policy: str) -> PluginConfig:
    return parse_config({"proposer": proposer, "draft_length": {"policy": policy, "tokens": 8}}, "test")


def test_fixed_asks_all_in_their_order_for_as_much_as_may_be() -> None:
    control = create_control(config(CASCADE, "fixed"), 2048)
    planned = control.plan([DraftRequest("a", limits, (0, 0)) for limits in ((8, 4), (0, 4), (3, 0))], BATCH)
    assert planned == [((0, 8), (1, 4)), ((1, 4),), ((0, 3),)]
    assert control.is_constant
    assert control.begin_step(1)


@pytest.mark.parametrize("proposer", [CASCADE, TREE], ids=["cascade", "alone"])
def test_random_lengths_take_every_value_in_every_order_and_do_not_depend_on_the_limits_alone(
    proposer: Mapping[str, object],
) -> None:
    """Seed 0. 2,000 plans; of four proposers' values the rarest is expected 100 times or more."""
    limits = (8, 4) if proposer is CASCADE else (4,)
    control = create_control(config(proposer, "random"), 2048)
    assert not control.is_constant
    request, batch = DraftRequest("a", limits, (0,) * len(limits)), StepBatch(1, 1, 100, 100)
    plans = [control.plan([request], batch)[0] for _ in range(2000)]
    for i, limit in enumerate(limits):
        counts = Counter(length_of(draft_plan, i) for draft_plan in plans)
        assert sorted(counts) == list(range(limit + 1))
        assert min(counts.values()) > 100
    orders = {tuple(i for i, _ in draft_plan) for draft_plan in plans}
    assert orders == ({(), (0,), (1,), (0, 1), (1, 0)} if proposer is CASCADE else {(), (0,)})
    assert plans == [create_control(config(proposer, "random"), 2048).plan([request] * 2000, batch)][0]


def test_random_lengths_switch_drafting_off_now_and_then_and_cut_drafts_beside_prompts() -> None:
    """Seed 0."""
    control = create_control(config(NGRAM, "random"), 2048)
    assert 800 < sum(control.begin_step(4) for _ in range(1000)) < 950
    assert {control.max_beside_prompts(20, 4, 100, 3) for _ in range(100)} == {0, 1, 2, 3}


def test_optimal_has_a_model_of_each_proposer_of_its_kind() -> None:
    """A chain of up to 8 tokens, and trees of 2 + 2 nodes of which any number may be drafted, also by itself."""
    control = create_control(config(CASCADE, "optimal"), 2048)
    assert isinstance(control, OptimalControl)
    assert [len(of_proposer) for of_proposer in control.acceptance] == [8, 4]
    alone = create_control(config(TREE, "optimal"), 2048)
    alone.probed([(1, 0.02), (64, 0.02)])
    request, batch = DraftRequest("a", (3,), (0,)), StepBatch(1, 1, 100, 100)
    assert alone.plan([request], batch) == [((0, 3),)]
    for _ in range(20):
        alone.verified("a", ((0, 3),), 0, 3, 1, nodes=(1,))
    alone.plan([request], batch)
    assert alone.acceptance[0][1] > 0.5 > alone.acceptance[0][0]


def test_nothing_is_left_to_compile_for_the_first_request() -> None:
    """Numba counts what it compiles."""
    control = create_control(config(CASCADE, "optimal"), 512)
    modules = [
        importlib.import_module(found.name)
        for found in iter_modules(importlib.import_module(NAME).__path__, NAME + ".")
    ]
    compiled = [function for module in modules for function in vars(module).values() if hasattr(function, "signatures")]
    before = [len(function.signatures) for function in compiled]
    assert sum(count > 0 for count in before) > 5
    ready = {function.__name__ for function, count in zip(compiled, before, strict=True) if count}
    assert ready >= {"plan_step", "_observe", "learn", "_expected", "_compare", "_write_odds"}
    for step in range(20):
        to_draft = [DraftRequest("a", (8, 8), (0, 100)), DraftRequest("b", (3, 0), (0, 0))][: 1 + step % 2]
        for request, draft_plan in zip(to_draft, control.plan(to_draft, StepBatch(2, 2, 100, 12)), strict=True):
            source, drafted = draft_plan[-1] if draft_plan else (None, 0)
            control.verified(request.request_id, draft_plan, source, drafted, min(drafted, 1))
        control.measured(MeasuredStep(9, 2, 100, 0.02, (Drafting(2, 3, 0, 1e-4), Drafting(1, 1, 100, 1e-3))))
    control.forget("b")
    assert [len(function.signatures) for function in compiled] == before
