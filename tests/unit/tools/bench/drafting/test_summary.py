"""Medians of steps and the limit of the speedup."""

import pytest

from tests.unit.tools.bench.drafting.cases import PLUGIN, STOCK, K, results, run, step
from vllm_spec_plugin.tools.bench.arm_words import NONE
from vllm_spec_plugin.tools.bench.drafting.summary import ArmSummary, limit, summarise


def of(*runs, batch: int = 1, k: int = K) -> ArmSummary:
    return summarise(runs, (), "plugin", batch, 0.0, k)


def test_a_draft_step_is_the_time_in_the_drafter_over_k() -> None:
    summary = of(run("plugin", [step(1, 5, 5, drafting_ms=2, num_drafted=4)]))
    assert summary.draft_step == {0: pytest.approx(0.45e-3)}
    assert summary.draft_step_prepared == {0: pytest.approx(0.5e-3)}


def test_the_target_step_is_the_step_without_its_drafting() -> None:
    assert of(run("plugin", [step(1, 5, 5, drafting_ms=2, num_drafted=4)])).target_step == {0: pytest.approx(3e-3)}


def test_each_round_has_the_median_of_its_own_steps() -> None:
    rounds = [[1, 2, 90], [3, 4, 5]]
    runs = [run("plugin", [step(1, 5, ms) for ms in times], number=n) for n, times in enumerate(rounds)]
    assert of(*runs).target_step == {0: pytest.approx(2e-3), 1: pytest.approx(4e-3)}


@pytest.mark.parametrize(
    "irregular",
    [
        step(2, 10, 50, 40, 4, in_prompt=True),
        step(1, 5, 50, 40, 4),  # a request has ended
        step(2, 9, 50, 40, 4),  # a draft was cut
        step(2, 2, 50, 40, 4),  # nothing was drafted for it
    ],
)
def test_only_regular_steps_are_timed(irregular) -> None:
    regular = step(2, 10, 5, 2, 4)
    summary = of(run("plugin", [irregular, regular, irregular], batch=2), batch=2)
    assert summary.target_step == {0: pytest.approx(3e-3)}
    assert summary.draft_step_prepared == {0: pytest.approx(0.5e-3)}


def test_a_draft_that_is_cut_short_is_no_draft_step() -> None:
    short, whole = step(1, 5, 5, 4, 2), step(1, 5, 5, 2, 4)
    assert of(run("plugin", [short, short, whole])).draft_step_prepared == {0: pytest.approx(0.5e-3)}


def test_an_arm_without_regular_steps_has_no_times() -> None:
    summary = of(run("plugin", [step(1, 3, 5, 2, 2)]))
    assert summary.target_step == summary.draft_step == summary.draft_step_prepared == {}


def test_tokens_per_second_are_all_tokens_over_the_whole_time() -> None:
    summary = of(run("plugin", [step()], batch=2, seconds=0.5, token_ids=[[1] * 30, [1] * 20]), batch=2)
    assert summary.tokens_per_second == {0: pytest.approx(100)}


def test_acceptance_is_summed_over_rounds() -> None:
    summary = of(run("plugin", [], seconds=1, counts=(10, 40, 5)), run("plugin", [], seconds=1, counts=(30, 60, 45)))
    assert summary.acceptance_length == pytest.approx(1 + 50 / 40)
    assert summary.acceptance_rate == pytest.approx(0.5)


def test_without_drafts_there_is_no_acceptance() -> None:
    summary = of(run("plugin", [step()]), k=0)
    assert summary.acceptance_length is None
    assert summary.acceptance_rate is None


def test_other_arms_batches_and_temperatures_do_not_count() -> None:
    own = run("plugin", [step(1, 5, 3)])
    others = [
        run("stock", [step(1, 5, 9)], number=1),
        run("plugin", [step(2, 10, 9)], batch=2, number=2),
        run("plugin", [step(1, 5, 9)], temperature=1.0, number=3),
    ]
    assert of(own, *others) == of(own)


def test_shares_add_up_to_the_whole_time() -> None:
    steps = [step(2, 9, 5, 2, 4, in_prompt=True), step(2, 10, 6, 2, 4), step(1, 5, 7, 2, 4)]
    shares = of(run("plugin", steps, batch=2, seconds=0.02), batch=2).shares
    assert (shares.prompts, shares.drafting, shares.target) == pytest.approx((5e-3, 2e-3, 4e-3))
    assert (shares.irregular, shares.between, shares.total) == pytest.approx((7e-3, 2e-3, 20e-3))


def test_parts_are_summed_over_profiled_rounds() -> None:
    profiled = [
        run("plugin", [], seconds=1, parts={"a": 1.0, "b": 2.0}),
        run("plugin", [], seconds=1, parts={"a": 3.0}),
    ]
    summary = summarise([run("plugin", [step()])], [*profiled, run("stock", [], parts={"a": 9.0})], "plugin", 1, 0.0, K)
    assert summary.parts == {"a": 4.0, "b": 2.0}


def test_limit_by_hand() -> None:
    """3 tokens a step; one token takes 2 ms, five 3 ms, four draft steps 1.6 ms."""
    found = results()
    cells = found.summaries
    bound = limit(cells[PLUGIN, 1, 0.0], cells[NONE, 1, 0.0])
    assert bound is not None
    assert bound.free == pytest.approx(3)
    assert bound.verifying == pytest.approx(3 * 2 / 3)
    assert bound.drafting == pytest.approx(3 * 2 / (3 + 1.6))
    # Without: 5 + 24 * 2 ms. With: 5 + 1.6 for the prompt, 8 * 4.6, 2 between steps.
    assert bound.measured == pytest.approx(53 / 45.4)
    assert bound.rest == pytest.approx(1 - (53 / 45.4) / (6 / 4.6))


def test_limit_is_reckoned_round_by_round() -> None:
    """One text is accepted whole and another never: no round's gain is that of the mean acceptance."""
    plain = [run("none", [step()] * 10, number=n, token_ids=[[0] * 10]) for n in range(3)]
    steps = [step(1, 5, 5, 2, 4)]
    runs = [
        run("plugin", steps * 2, number=0, token_ids=[[0] * 10], counts=(2, 8, 8)),
        run("plugin", steps * 2, number=1, token_ids=[[0] * 10], counts=(2, 8, 8)),
        run("plugin", steps * 10, number=2, token_ids=[[0] * 10], counts=(10, 40, 0)),
    ]
    arm = of(*runs)
    assert arm.acceptance_length == pytest.approx(1 + 16 / 14)
    bound = limit(arm, summarise(plain, (), "none", 1, 0.0, 0))
    assert bound is not None
    assert (bound.free, bound.verifying, bound.drafting) == pytest.approx((5, 5 * 2 / 3, 2))
    assert (bound.measured, bound.rest) == pytest.approx((2, 0))


def test_no_limit_without_measurements() -> None:
    none = results().summaries[NONE, 1, 0.0]
    assert limit(of(run("plugin", [step(1, 3, 5, 2, 2)], counts=(1, 4, 1))), none) is None
    assert limit(of(run("plugin", [step(1, 5, 5, 2, 4)])), none) is None
    assert limit(results().summaries[STOCK, 1, 0.0], none) is not None
