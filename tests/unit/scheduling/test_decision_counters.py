"""Decisions of a policy, counted and explained."""

import pytest

from tests.unit.scheduling.adapters import CASCADE, Listening, counted_of, end, make, output, plan, request
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.control import DraftRequest, StepForecast
from vllm_spec_plugin.scheduling import step_planner as module
from vllm_spec_plugin.scheduling.decision_counters import DecisionCounters, explain


def test_counts_and_explains_decisions(clock, caplog):
    control = Listening([2, 0])
    control.forecast = StepForecast(3.0, 0.05, 2, 0.04, 0.02)
    control.acceptance = ((0.8, 0.5),)
    running = [request("a"), request("b")]
    adapter = make(control, *running)
    with caplog.at_level("DEBUG", logger="vllm.vllm_spec_plugin"):
        module.logger.propagate = True
        plan(adapter, output({"a": 1, "b": 1}), running)
        clock.now = 0.1
        end(adapter, *running)
        control.lengths = [0, 1]
        plan(adapter, output({"a": 3, "b": 1}), running)
        clock.now = 0.16
        end(adapter, *running, drafted=2, accepted=1)
    adapter.note_estimates()
    counters = counted_of(control)
    assert counters.chosen_lengths == [2, 1, 1]
    assert counters.switched_off == 1
    assert counters.predicted_seconds == pytest.approx(0.05)
    assert counters.measured_seconds == pytest.approx(0.06)
    assert counters.expected_saved_seconds == pytest.approx(3 * 0.02 - 0.05)
    assert counters.realised_saved_seconds == pytest.approx(4 * 0.02 - 0.06)
    assert counters.acceptance == [0.8, 0.5]
    assert [step.forecast for step in control.steps[:2]] == [None, control.forecast]
    assert caplog.messages[0].startswith("draft lengths a:2 b:0; expected 3.00 tokens in 50.00 ms, without 2 in 40.00")


def test_a_token_accepted_beside_a_prompt_saves_a_share_of_a_later_step_without_prompts():
    """Two requests decode beside a prompt in 0.1 s; without it a step takes 0.04 s."""
    counters = CountersByMethod()
    DecisionCounters(counters, "ngram", ["ngram"]).compare(StepForecast(3.5, 0.105, 2, 0.1, 0.02), 4, 0.11)
    assert counters.of("ngram").expected_saved_seconds == pytest.approx(1.5 * 0.02 - 0.005)
    assert counters.of("ngram").realised_saved_seconds == pytest.approx(2 * 0.02 - 0.01)


def test_explains_who_drafts_in_a_cascade():
    control = Listening()
    requests = [DraftRequest("a", (4, 4), (0, 0)), DraftRequest("b", (4, 4), (0, 0))]
    forecast = StepForecast(3.0, 0.05, 2, 0.04, 0.02)
    line = explain(requests, [((1, 3), (0, 2)), ()], forecast, ((0.8,), (0.5, 0.25)), ["ngram", "draft_model"])
    assert line.startswith("draft lengths a:draft_model(3)>ngram(2) b:0; expected 3.00 tokens")
    assert line.endswith("acceptance 0.80, 0.50 0.25")
    a = request("a", spec_tokens=3)
    adapter = make(control, a, config=CASCADE)
    plan(adapter, output({"a": 1}), [a])
    lengths = [control.counters.of(method).chosen_lengths for method in ("cascade", "ngram", "draft_model")]
    assert lengths == [[0, 0, 0, 1]] * 3
