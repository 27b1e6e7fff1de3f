"""The chaos, judged by invented figures."""

import pytest

from loadtests.acceptance.chaos.agreement import Agreement, Answer
from loadtests.acceptance.chaos.checks import (
    agreement_check,
    faults_check,
    freeze_check,
    leavers_check,
    survivors_check,
)
from loadtests.acceptance.chaos.refusals import bad_requests, refusal_check
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS, RANKS_DIFFER, WRONG_TREE

ERRORS = {reason: 5.0 for reason in PROPOSER_ERRORS if reason not in (WRONG_TREE, RANKS_DIFFER)}
WHOLE = [Answer(prompt, (1, 2, 3)) for prompt in (0, 1, 1)]


def test_all_are_answered_to_the_last_token() -> None:
    assert survivors_check("chaos", WHOLE, 2, 3).passed
    assert not survivors_check("chaos", WHOLE, 3, 3).passed
    assert not survivors_check("chaos", WHOLE, 2, 4).passed
    failed = survivors_check("chaos", [*WHOLE, Answer(0, (1,), "cut: gone")], 2, 3)
    assert not failed.passed
    assert "cut: gone" in failed.figures


def test_one_wrong_output_is_too_many() -> None:
    assert agreement_check("chaos", Agreement(40, 2, ())).passed
    assert not agreement_check("chaos", Agreement(40, 2, ("prompt 3, token 9: 1 in place of 2",))).passed
    assert not agreement_check("chaos", Agreement(0, 2, ())).passed


@pytest.mark.parametrize(("early", "midway", "passed"), [(3, 40, True), (0, 40, False), (3, 0, False)])
def test_clients_did_leave(early: int, midway: int, passed: bool) -> None:
    assert leavers_check("chaos", early, midway).passed is passed


def test_each_kind_of_fault_is_counted() -> None:
    assert faults_check("chaos", ERRORS, 100.0).passed
    assert not faults_check("chaos", ERRORS, 0.0).passed
    assert not faults_check("chaos", ERRORS, None).passed
    assert not faults_check("chaos", {}, 100.0).passed
    for reason in ERRORS:
        assert not faults_check("chaos", ERRORS | {reason: 0.0}, 100.0).passed


def test_a_worker_goes_on() -> None:
    assert freeze_check("chaos", [3.0, 3.1], 500.0).passed
    assert not freeze_check("chaos", [3.0, 3.1], 0.0).passed
    assert not freeze_check("chaos", [], 500.0).passed


def test_every_kind_of_nonsense_is_refused_with_400() -> None:
    bad = bad_requests("m", 2048)
    kinds = [one.name for one in bad]
    assert len(set(kinds)) == len(kinds)
    answers = [(name, 400) for name in kinds]
    assert refusal_check("chaos", answers * 2, len(kinds)).passed
    assert not refusal_check("chaos", answers[1:], len(kinds)).passed
    crash = refusal_check("chaos", [*answers, (kinds[4], 500)], len(kinds))
    assert not crash.passed
    assert f"500 for {kinds[4]}" in crash.figures


def test_prompts_that_are_too_long_are() -> None:
    long = next(one for one in bad_requests("m", 2048) if "prompt longer" in one.name)
    assert len(long.body["prompt"]) > 2048
