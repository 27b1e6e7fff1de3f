"""The chaos: its checks by invented figures, and its clients against a mock server."""

import time

import pytest

from loadtests.stream.client import COMPLETIONS
from tests.acceptance.chaos.clients import (
    NUM_TOKENS,
    Answer,
    BadRequest,
    Crowd,
    Expected,
    Tokens,
    bad_requests,
)
from tests.acceptance.chaos.run import (
    agreement_check,
    faults_check,
    freeze_check,
    leavers_check,
    refusal_check,
    survivors_check,
)
from tests.mock_server import MockOptions, MockServer
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS, RANKS_DIFFER, WRONG_TREE

EXPECTED = [Expected((1, 2), (10, 11, 12, 13)), Expected((3,), (20, 21, 22, 23))]


class TopTwo:
    """A server that finds 12 and 99 most likely, so far apart; notes what it is asked."""

    def __init__(self, gap: float) -> None:
        self.asked: list[Tokens] = []
        self._gap = gap

    def __call__(self, text: Tokens) -> dict[int, float]:
        self.asked.append(text)
        return {12: -1.0, 99: -1.0 - self._gap}


SAME = [Answer(0, (10, 11, 12, 13)), Answer(1, (20, 21, 22, 23)), Answer(1, (), "cut: gone")]


def test_the_same_tokens_are_identical_and_nothing_is_asked() -> None:
    top_two = TopTwo(9.0)
    found = agreement_check(SAME, EXPECTED, top_two)
    assert (found.passed, found.figures, top_two.asked) == (
        True,
        "2 identical, 0 differ where two tokens tie, 0 wrong",
        [],
    )


def test_where_they_part_the_two_tokens_must_tie() -> None:
    answers = [*SAME, Answer(0, (10, 11, 99, 5))]
    tied, apart = TopTwo(5e-5), TopTwo(5e-3)
    found = agreement_check(answers, EXPECTED, tied)
    assert (found.passed, found.figures) == (True, "2 identical, 1 differ where two tokens tie, 0 wrong")
    assert tied.asked == [(1, 2, 10, 11)]
    found = agreement_check(answers, EXPECTED, apart)
    assert not found.passed
    assert found.figures.endswith("1 wrong: output 2, token 3: 99, not 12, 0.0050 apart")
    assert not agreement_check(answers[-1:], EXPECTED, tied).passed


def test_an_output_that_ends_early_or_goes_on_is_wrong_wherever() -> None:
    for tokens in ((20, 21), (20, 21, 22, 23, 24), ()):
        found = agreement_check([*SAME, Answer(1, tokens)], EXPECTED, TopTwo(0.0))
        assert not found.passed
        assert "1 wrong" in found.figures


ERRORS = {reason: 5.0 for reason in PROPOSER_ERRORS if reason not in (WRONG_TREE, RANKS_DIFFER)}
WHOLE = [Answer(prompt, (1, 2, 3)) for prompt in (0, 1, 1)]


def test_all_are_answered_to_the_last_token() -> None:
    assert survivors_check(WHOLE, 2, 3).passed
    assert not survivors_check(WHOLE, 3, 3).passed
    assert not survivors_check(WHOLE, 2, 4).passed
    failed = survivors_check([*WHOLE, Answer(0, (1,), "cut: gone")], 2, 3)
    assert not failed.passed
    assert "cut: gone" in failed.figures


@pytest.mark.parametrize(("early", "midway", "passed"), [(3, 40, True), (0, 40, False), (3, 0, False)])
def test_clients_did_leave(early: int, midway: int, passed: bool) -> None:
    assert leavers_check(early, midway).passed is passed


def test_each_kind_of_fault_is_counted() -> None:
    assert faults_check(ERRORS, 100.0).passed
    assert not faults_check(ERRORS, 0.0).passed
    assert not faults_check(ERRORS, None).passed
    assert not faults_check({}, 100.0).passed
    for reason in ERRORS:
        assert not faults_check(ERRORS | {reason: 0.0}, 100.0).passed


def test_a_worker_goes_on() -> None:
    assert freeze_check([3.0, 3.1], 500.0).passed
    assert not freeze_check([3.0, 3.1], 0.0).passed
    assert not freeze_check([], 500.0).passed


def test_every_kind_of_nonsense_is_refused_with_400() -> None:
    bad = bad_requests("m", 2048)
    kinds = [one.name for one in bad]
    assert len(set(kinds)) == len(kinds)
    answers = [(name, 400) for name in kinds]
    assert refusal_check(answers * 2, len(kinds)).passed
    assert not refusal_check(answers[1:], len(kinds)).passed
    crash = refusal_check([*answers, (kinds[4], 500)], len(kinds))
    assert not crash.passed
    assert f"500 for {kinds[4]}" in crash.figures


BAD = [
    BadRequest("negative max_tokens", COMPLETIONS, {"model": "mock", "prompt": "x", "max_tokens": -5}),
    BadRequest("no JSON", COMPLETIONS, b'{"model": '),
]


def has_seen_all(crowd: Crowd) -> bool:
    answered = {answer.prompt for answer in crowd.answers}
    return bool(crowd.left_early and crowd.left_midway) and answered == {0, 1} and len(crowd.refusals) >= len(BAD)


def test_some_stay_some_leave_and_nonsense_is_refused() -> None:
    with MockServer(MockOptions(port=0, ttft_ms=30, itl_ms=1, tokens_per_chunk=2.5)) as mock:
        with Crowd(mock.base_url, "mock", ["def a", "def b"], BAD, seed=0) as crowd:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not has_seen_all(crowd):
                time.sleep(0.05)
        count = len(crowd.answers)
        time.sleep(0.2)
    # Nobody asks any more.
    assert len(crowd.answers) == count
    assert has_seen_all(crowd)
    assert all(not answer.error and len(answer.tokens) == NUM_TOKENS for answer in crowd.answers)
    # The same prompt gets the same text.
    assert len({answer.tokens for answer in crowd.answers}) == 2
    assert set(crowd.refusals) == {(bad.name, 400) for bad in BAD}
