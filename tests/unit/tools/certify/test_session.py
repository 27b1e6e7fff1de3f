"""Whole certifications, of engines without a model."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.certify.fake_engine import FakeEngine
from vllm_spec_plugin.register import modes
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.certify import session, subject
from vllm_spec_tools.certify.baseline import QUICK
from vllm_spec_tools.certify.report import sentences
from vllm_spec_tools.certify.results import SEEDED, Certificate
from vllm_spec_tools.certify.session import Certification, certify
from vllm_spec_tools.certify.subject import AS_GIVEN, FORCED, PLAIN, TIGHT

CONFIGS = Path(__file__).parents[4] / "configs"
SIZES = dataclasses.replace(QUICK, greedy=8, greedy_tokens=24, sampling_prompts=2, samples=150)
MOST = 1e-3


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(unverified: float = 0.0, baseline: Path | None = None, **rates: float) -> Certificate:
        monkeypatch.setattr(FakeEngine, "unverified", unverified)
        monkeypatch.setattr(FakeEngine, "rate", {label.replace("_", " "): rate for label, rate in rates.items()})
        monkeypatch.setattr(session, "EngineProcess", FakeEngine)
        plan = Certification("model", CONFIGS / "ngram.yaml", 1024, {}, None, SIZES, MOST, baseline=baseline)
        return certify(plan, tmp_path, {}, lambda what: None)

    return run


@pytest.mark.statistical
def test_an_exact_engine_is_certified_with_bounded_false_alarms_and_power(certified: Any) -> None:
    """300 outputs per setting, seed 0. False-alarm rate: 1e-3."""
    found = certified()
    assert found.exit_status == 0
    assert {check.engine for check in found.checks} == {PLAIN, FORCED, TIGHT, AS_GIVEN}
    p_values = [p for check in found.checks for p in (check.p_value, check.p_two_samples) if p is not None]
    # Each may be below the threshold by chance.
    assert len(p_values) == 7 * 5
    assert found.threshold * len(p_values) == pytest.approx(MOST)
    sampled = [check for check in found.checks if check.p_value is not None and check.engine == FORCED]
    assert {check.outputs for check in sampled} == {300}
    assert any(check.smallest_fault is not None for check in sampled)


@pytest.mark.statistical
def test_a_fault_in_the_samples_is_found(certified: Any) -> None:
    """300 outputs per setting, seed 0: half of the draft tokens are output without verification."""
    found = certified(unverified=0.5)
    assert found.exit_status == 1
    assert len([check for check in found.failed if check.engine == FORCED]) >= 6
    assert not [check for check in found.failed if check.engine == PLAIN]


@pytest.mark.parametrize(("unverified", "status"), [(0.0, 0), (0.02, 1)])
def test_where_verification_is_coupled_seeded_outputs_are_compared(
    certified: Any, monkeypatch: pytest.MonkeyPatch, unverified: float, status: int
) -> None:
    """32 outputs in 7 settings; of the faulty engine 2% of the draft tokens are output without verification. Seed 0."""
    for module in (modes, subject):
        monkeypatch.setattr(module, "takes_v2", lambda: True)
    monkeypatch.setattr(FakeEngine, "runner", "V2")
    found = certified(unverified)
    assert found.exit_status == status
    assert found.threshold == pytest.approx(MOST / 3)
    seeded = [check for check in found.checks if check.name == SEEDED]
    assert {check.engine for check in seeded} == {FORCED, TIGHT, AS_GIVEN}
    assert not [check for check in found.checks if check.name.startswith(("samples", "seeds"))]
    assert ({check.outcome for check in seeded} == {"exact"}) is not bool(unverified)
    if not unverified:
        assert all(check.smallest_fault is not None and check.smallest_fault < 0.01 for check in seeded)
        assert "tokens are not the ones without speculation" in " ".join(sentences(found))


def test_an_engine_on_another_runner_than_expected_is_no_fault_of_its_outputs(
    certified: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (modes, subject):
        monkeypatch.setattr(module, "takes_v2", lambda: True)
    with pytest.raises(UserError, match=r"got vLLM's V1 runner, .*; allowed: set VLLM_USE_V2_MODEL_RUNNER=0"):
        certified()


def test_an_engine_that_hardly_drafts_as_configured_is_not_tested_as_configured(certified: Any) -> None:
    found = certified(as_configured=0.0)
    assert found.exit_status == 3
    given = [check for check in found.checks if check.engine == AS_GIVEN]
    assert {check.outcome for check in given} == {"not tested"}
    # Rounds that would find nothing are not drawn.
    assert {check.outputs for check in given if check.p_value is not None} == {200}
    assert {check.outcome for check in found.checks if check.engine == FORCED and check.is_required} == {"exact"}


def test_engines_that_hardly_draft_are_not_certified_by_the_samples_without_speculation(certified: Any) -> None:
    found = certified(as_configured=0.0, random_draft_lengths=0.0)
    assert found.exit_status == 2
    assert "samples, temperature 1" in found.untested


def test_outputs_without_speculation_are_kept_for_other_configurations(
    certified: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = tmp_path / "baseline", dataclasses.replace(SIZES, samples=50)
    monkeypatch.setattr(sys.modules[__name__], "SIZES", few)
    first = certified(baseline=path)
    again = certified(baseline=path)
    assert (first.baseline, again.baseline) == ("", str(path))
    assert again.checks[:7] == first.checks[:7]
    assert {check.engine for check in first.checks[:7]} == {PLAIN}
    assert [check.name for check in again.checks] == [check.name for check in first.checks]
    monkeypatch.setattr(sys.modules[__name__], "SIZES", dataclasses.replace(few, greedy=4))
    with pytest.raises(UserError, match=r"--baseline .*: got a baseline of other sizes; allowed: one of the same"):
        certified(baseline=path)
    path.write_bytes(b"no baseline")
    with pytest.raises(UserError, match=r"--baseline .*: got no baseline of this version; allowed: a file"):
        certified(baseline=path)
