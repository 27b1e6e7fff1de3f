"""Tests that each method's outputs equal those of the engine without speculation, and that drafts are verified.

In the order of their worth: each test goes through all arms before the next begins.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.jobs import CertifyRequest
from tests.engine.storm import Outcome, Storm
from tests.gpu.arms import ARMS, ASLEEP, BFLOAT16, FEW_BLOCKS, V1
from tests.gpu.conftest import HAS_GPU, SIZES, Subject
from vllm_spec_tools.certify.baseline import Baseline
from vllm_spec_tools.certify.checks import check_coupled, check_greedy, check_json, check_samples, check_seeds
from vllm_spec_tools.certify.greedy import TOLERANCES
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.engines.jobs import Job

DRAFTING = [name for name, setup in ARMS.items() if setup.config]
OWN = [name for name in DRAFTING if not ARMS[name].is_native]
COUPLED = [name for name in DRAFTING if ARMS[name].is_native and ARMS[name].environment != V1]
SETTINGS = ("temperature 1", "penalties", "all together")
# False alarms of all together: 1e-3.
THRESHOLD = 1e-3 / (2 * len(SETTINGS) * len(DRAFTING))


def each(names: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("arm", names, indirect=True)


def known(arm: Subject, baseline: Baseline) -> Baseline:
    """Chooses the baseline of an arm; for methods that draft from predictions, requests have some."""
    return baseline.predicting() if arm.setup.uses_predictions else baseline


def show(check: Check, record_property: Any) -> None:
    """Into the file of results."""
    record_property(check.name, {"drafted": check.drafted, "accepted": check.accepted, "detail": check.detail})


@each(["none, V2"])
def test_both_runners_agree(arm: Subject, baseline: Baseline) -> None:
    assert check_greedy(arm, baseline, "greedy", "").outcome != "not exact"


@each(DRAFTING)
def test_greedy_outputs_are_equal(arm: Subject, baseline: Baseline, record_property: Any) -> None:
    """Four draft tokens in each step, where the proposer has any."""
    check = check_greedy(arm, known(arm, baseline), "greedy", "")
    show(check, record_property)
    assert check.outcome == "exact", check.detail


@each(DRAFTING)
def test_nothing_is_drafted_where_drafts_are_off(arm: Subject, baseline: Baseline) -> None:
    off = [dataclasses.replace(r, params=r.params | {"extra_args": {"spec": "off"}}) for r in baseline.work.greedy]
    work = dataclasses.replace(baseline.work, greedy=off)
    check = check_greedy(arm, dataclasses.replace(baseline, work=work), "off", "")
    assert check.outcome != "not exact", check.detail
    assert check.drafted == 0


@each(DRAFTING)
def test_sampled_outputs_have_the_exact_distribution(arm: Subject, baseline: Baseline, record_property: Any) -> None:
    """4 prompts, 300 continuations each (on a CPU 100) in 3 settings, by `certify`'s tests. Seed 0."""
    base = known(arm, baseline)
    work = dataclasses.replace(base.work, settings={name: base.work.settings[name] for name in SETTINGS})
    base = dataclasses.replace(base, work=work, samples={name: base.samples[name] for name in SETTINGS})
    accepted = arm.setup.max_accepted
    checks = list(check_samples(arm, base, "", SIZES, accepted, THRESHOLD, lambda what: None))
    for check in checks:
        show(check, record_property)
    assert {check.outcome for check in checks} == {"exact"}, checks


@each(COUPLED)
def test_seeded_outputs_are_those_without_speculation(arm: Subject, seeded: Baseline, record_property: Any) -> None:
    """40 outputs in five settings, token by token. False-alarm rate: 1e-3."""
    check = check_coupled(arm, known(arm, seeded), "", 1e-3 / len(COUPLED))
    show(check, record_property)
    assert check.outcome != "not exact", check.detail


@each(list(FEW_BLOCKS))
def test_preempted_requests_go_on_as_they_would(arm: Subject, baseline: Baseline, record_property: Any) -> None:
    check = check_greedy(arm, baseline, "few blocks", "", tight=True)
    show(check, record_property)
    assert check.outcome == "exact", check.detail


@each([name for name in BFLOAT16 if BFLOAT16[name].config])
def test_bfloat16_outputs_are_equal_but_for_close_logits(
    arm: Subject, bfloat16: Subject, baseline: Baseline, record_property: Any
) -> None:
    top_two = [CertifyRequest(r.prompt, r.params | {"logprobs": 2}) for r in baseline.work.greedy]
    base = dataclasses.replace(baseline, greedy=bfloat16.run(Job(top_two)), tolerance=TOLERANCES["bfloat16"])
    check = check_greedy(arm, base, "bfloat16", "")
    show(check, record_property)
    assert check.outcome == "exact", check.detail


@each(DRAFTING)
def test_json_follows_its_schema(arm: Subject, baseline: Baseline, record_property: Any) -> None:
    check = check_json(arm, known(arm, baseline), "")
    show(check, record_property)
    assert check.outcome != "not exact", check.detail


@each(OWN)
def test_seeded_outputs_are_the_same_alone_and_in_a_crowd(arm: Subject, baseline: Baseline) -> None:
    check = check_seeds(arm, known(arm, baseline), "")
    assert check.outcome != "not exact", check.detail


@each(["suffix", "draft_model", "eagle3"])
@pytest.mark.parametrize("fault", ["raise", "out_of_vocabulary", "out_of_memory"])
def test_a_fault_of_the_proposer_costs_drafts_only(arm: Subject, fault: str, baseline: Baseline) -> None:
    """In every other step, or every seventh pass of a draft model."""
    faulty = arm.having(fault=fault)
    check = check_greedy(faulty, baseline, fault, "")
    assert check.outcome != "not exact", check.detail
    metrics = faulty.results[-1].metrics
    errors = sum(count for name, count in metrics.items() if name.startswith("vllm_spec_plugin:proposer_errors_total"))
    # Suffixes need no memory of the device.
    assert errors > 0 or (fault == "out_of_memory" and arm.setup == ARMS["suffix"])


@each(["draft_model", "native draft_model", "suffix, V2", *FEW_BLOCKS])
def test_requests_come_and_go(arm: Subject, baseline: Baseline) -> None:
    """300 requests (on a CPU 60): a third is aborted; outputs are those without drafts."""
    greedy = baseline.greedy.tokens()
    storm = Storm(baseline.work.greedy, SIZES.samples if HAS_GPU else 60)
    outcomes: list[Outcome] = arm.having(storm=storm).run(Job([])).notes["storm"]
    assert {outcome.end for outcome in outcomes} == {"finished", "aborted"}
    said = [outcome for outcome in outcomes if outcome.token_ids]
    # Every batch rounds otherwise, so some may differ where logits tie.
    different = [o for o in said if list(o.token_ids) != greedy[o.request][: len(o.token_ids)]]
    assert len(different) <= len(said) / 50


@each(list(ASLEEP))
def test_outputs_are_equal_after_sleep(arm: Subject, baseline: Baseline, record_property: Any) -> None:
    before, after = (check_greedy(engine, baseline, "sleep", "") for engine in (arm, arm.having(sleep_level=1)))
    show(after, record_property)
    assert (before.outcome, after.outcome) == ("exact", "exact"), (before.detail, after.detail)
    # Draft weights came back as they were.
    assert after.accepted == before.accepted
