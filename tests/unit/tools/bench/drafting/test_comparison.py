"""The rounds of the benchmark of drafting, its figures and its report."""

from typing import Any

import pytest

from tests.unit.tools.bench.drafting.cases import PLUGIN, K, results, run, step
from vllm_spec_plugin.tools.bench.arm_spec import NONE
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.drafting.comparison import SHARES, figures
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan
from vllm_spec_plugin.tools.bench.records import Step

PROMPTS = ("a", "b", "c")
ARMS = {NONE: PlannedArm(ArmPlan(None, 0, None)), PLUGIN: PlannedArm(ArmPlan("plugin.yaml", 4, {}))}


def of(*steps: Step, batch: int = 1, **fields: Any) -> dict[str, float | None]:
    return figures(run("plugin", steps, batch=batch, **fields).answer, batch, K)


def test_a_steps_time_is_the_drafters_and_the_targets() -> None:
    found = of(step(1, 5, 5, drafting_ms=2, num_drafted=4))
    assert found["draft_step"] == pytest.approx(0.45e-3)
    assert found["draft_step_prepared"] == pytest.approx(0.5e-3)
    assert found["target_step"] == pytest.approx(3e-3)
    assert of(*(step(1, 5, ms) for ms in (1, 2, 90)))["target_step"] == pytest.approx(2e-3)


@pytest.mark.parametrize(
    "irregular",
    [
        step(2, 10, 50, 40, 4, in_prompt=True),
        step(1, 5, 50, 40, 4),  # a request has ended
        step(2, 9, 50, 40, 4),  # a draft was cut
        step(2, 2, 50, 40, 4),  # nothing was drafted for it
    ],
)
def test_only_regular_steps_are_timed(irregular: Step) -> None:
    found = of(irregular, step(2, 10, 5, 2, 4), irregular, batch=2)
    assert found["target_step"] == pytest.approx(3e-3)
    assert found["draft_step_prepared"] == pytest.approx(0.5e-3)


def test_short_drafts_are_no_draft_steps_and_without_regular_steps_there_are_no_times() -> None:
    short, whole = step(1, 5, 5, 4, 2), step(1, 5, 5, 2, 4)
    assert of(short, short, whole)["draft_step_prepared"] == pytest.approx(0.5e-3)
    found = of(step(1, 3, 5, 2, 2))
    assert found["target_step"] is found["draft_step"] is found["tree_step"] is None


def test_trees_are_timed_where_there_are_any() -> None:
    tree = Step(1, 5, False, 4, 5e-3, 2e-3, 1.8e-3, 1e-3)
    assert of(tree)["tree_step"] == pytest.approx(1e-3)
    assert of(tree)["tree_share"] == pytest.approx(0.2)


def test_acceptance_and_throughput_are_of_the_whole_run() -> None:
    found = of(step(), batch=2, seconds=0.5, counts=(10, 40, 20))
    assert found["tokens_per_second"] == pytest.approx(12)
    assert (found["acceptance_length"], found["acceptance_rate"]) == (3.0, 0.5)
    assert of(step())["acceptance_length"] is None


def test_shares_add_up_to_all_the_time() -> None:
    steps = [step(1, 9, 10, in_prompt=True), step(1, 5, 5, 2, 4), step(1, 2, 3)]
    found = of(*steps, seconds=20e-3)
    shares = {name: found[f"share, {name}"] for name in SHARES}
    assert shares == pytest.approx({"drafting": 0.1, "target": 0.15, "prompts": 0.5, "irregular": 0.15, "between": 0.1})


def test_the_limit_follows_from_acceptance_and_the_times_of_steps() -> None:
    found = results()
    limit = {name: found.median(PLUGIN, (1, 0.0), f"limit, {name}") for name in ("free", "verifying", "drafting")}
    # A = 3; T(1) = 2 ms, T(5) = 3 ms, K d = 1.6 ms.
    assert limit == pytest.approx({"free": 3.0, "verifying": 2.0, "drafting": 6 / 4.6})
    assert found.median(NONE, (1, 0.0), "limit, free") is None
