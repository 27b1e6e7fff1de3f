"""Acceptance by place, counted over request-steps."""

import pytest

from tests.unit.tools.planner.cases import STEPS, answer
from vllm_spec_tools.planner.predicting import Acceptance


def test_counts_add_up_over_jobs() -> None:
    jobs = [answer(2, 3, (0.8, 0.5, 0.5), 0.01, 0), answer(1, 3, (0.4, 0.5, 0.0), 0.01, 0)]
    found = Acceptance.of(jobs, 3)
    assert (found.request_steps, found.drafts) == (3 * STEPS, 3 * STEPS)
    assert found.accepted == (200, 100, 40)
    assert found.reached == pytest.approx([2 / 3, 1 / 3, 2 / 15])
    assert found.rates == pytest.approx([2 / 3, 0.5, 0.4])
    assert found.length == pytest.approx(1 + 340 / 300)
    assert found.tokens_per_step == pytest.approx(1 + 340 / 300)


def test_steps_without_a_draft_give_one_token() -> None:
    found = Acceptance.of([answer(1, 2, (0.5, 0.5), 0.01, 0, draft_share=0.4)], 2)
    assert found.draft_share == pytest.approx(0.4)
    assert found.rates == pytest.approx([0.5, 0.5])
    assert found.reached == pytest.approx([0.2, 0.1])
    assert found.length == pytest.approx(1.75)
    assert found.tokens_per_step == pytest.approx(1.3)
    assert found.perfect.tokens_per_step == pytest.approx(1.8)


def test_without_drafts_there_is_no_length() -> None:
    found = Acceptance.of([answer(1, 0, (), 0.01, 0)], 2)
    assert found.length is None
    assert found.rates == [0, 0]
    assert found.tokens_per_step == 1
    assert Acceptance.of([], 2).tokens_per_step == 1
