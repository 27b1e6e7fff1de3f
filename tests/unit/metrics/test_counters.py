"""Adding up steps, and showing them."""

import time

from prometheus_client import CollectorRegistry

from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters, Timing
from vllm_spec_plugin.metrics.prometheus import Exporter


def test_blocks_of_code_are_timed(monkeypatch):
    clock = iter([5.0, 5.25, 7.0, 7.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    counters = StepCounters("ngram")
    for _ in range(2):
        with Timing(counters, "tree_seconds"):
            pass
    assert (counters.tree_seconds, counters.verification_seconds) == (0.75, 0.0)


def test_steps_add_up():
    total = StepCounters("ngram", drafts=1, draft_tokens=4, proposer_seconds=0.5, kv_blocks_reserved=2)
    total.count_error("raised")
    other = StepCounters("ngram", drafts=2, draft_tokens=5, verification_seconds=0.25, proposer_errors={"raised": 2})
    total.add(other)
    for seconds in (0.5, 1.0):
        total.add(StepCounters("ngram", tree_seconds=seconds))
    total.add(StepCounters("ngram", kv_blocks_reserved=1, kv_blocks_rolled_back=4, drafts_cut_for_memory=5))
    assert total == StepCounters("ngram", 3, 9, {"raised": 3}, 0.5, 0.25, 1.5, 3, 4, 5)


def test_reasons_add_up_and_are_shown_from_zero():
    total, other = StepCounters("ngram"), StepCounters("ngram")
    for counters, reason in ((total, "resumable"), (other, "resumable"), (other, "thinking_budget")):
        counters.count_without_drafts(reason)
    total.add(other)
    assert total.without_drafts == {"resumable": 2, "thinking_budget": 1}
    registry = CollectorRegistry()
    Exporter(registry).add([total.to_payload()])
    name = "vllm_spec_plugin:requests_without_drafts_total"
    assert registry.get_sample_value(name, {"reason": "resumable"}) == 2
    assert registry.get_sample_value(name, {"reason": "pooling"}) == 0


def test_positions_add_up_however_long_the_drafts_are():
    total = StepCounters("ngram")
    total.count_verified(1, 1)
    total.count_verified(4, 2)
    other = StepCounters("ngram")
    other.count_verified(2, 0)
    total.add(other)
    assert total.verified_per_position == [3, 2, 1, 1]
    assert total.accepted_per_position == [2, 1]


def test_a_request_that_ends_tells_how_its_drafts_fared():
    log = AcceptanceLog()
    log.verified("a", 4, 4)
    log.verified("a", 4, 1)
    log.verified("b", 2, 0)
    assert log.ended("a") == (5 / 8, 1 + 5 / 2)
    assert log.ended("b") == (0, 1)
    assert log.ended("a") is None


def test_prometheus_shows_sums_and_zero_errors():
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    exporter.add([StepCounters("ngram", drafts=2, draft_tokens=7, proposer_errors={"raised": 1}).to_payload()])
    exporter.add([StepCounters("ngram", drafts=1, verification_seconds=0.5, tree_seconds=0.125).to_payload()])
    exporter.add([StepCounters("ngram", tree_seconds=0.25, proposer_errors={"wrong_tree": 2}).to_payload()])
    for _ in range(2):
        memory = StepCounters("ngram", kv_blocks_reserved=1, kv_blocks_rolled_back=2, drafts_cut_for_memory=3)
        exporter.add([memory.to_payload()])

    def value(name, **labels):
        return registry.get_sample_value(f"vllm_spec_plugin:{name}_total", labels)

    assert value("drafts", method="ngram") == 3
    assert value("draft_tokens", method="ngram") == 7
    assert value("proposer_errors", method="ngram", reason="raised") == 1
    assert value("proposer_errors", method="ngram", reason="bad_probabilities") == 0
    assert value("proposer_errors", method="ngram", reason="wrong_tree") == 2
    assert value("verification_seconds") == 0.5
    assert value("tree_seconds") == 0.375
    assert value("kv_blocks_reserved") == 2
    assert value("kv_blocks_rolled_back") == 4
    assert value("drafts_cut_for_memory", method="ngram") == 6
    assert value("requests_without_salt") == 0
    exporter.add([StepCounters("ngram", requests_without_salt=2).to_payload()])
    exporter.add([StepCounters("suffix", requests_without_salt=1).to_payload()])
    assert value("requests_without_salt") == 3

    steps = StepCounters("ngram", ended=[(0.5, 3.0), (0.75, 4.0)])
    steps.count_verified(2, 1)
    exporter.add([steps.to_payload()])
    assert value("verified_tokens", method="ngram", position="1") == 1
    assert value("accepted_tokens", method="ngram", position="0") == 1
    assert registry.get_sample_value("vllm_spec_plugin:request_acceptance_rate_sum", {"method": "ngram"}) == 1.25
    assert registry.get_sample_value("vllm_spec_plugin:request_acceptance_length_sum", {"method": "ngram"}) == 7


def test_what_the_policy_decided_adds_up():
    total = StepCounters("ngram", chosen_lengths=[1, 0, 2], switched_off=1, predicted_seconds=0.5, acceptance=[0.7])
    total.add(StepCounters("ngram", chosen_lengths=[0, 1], measured_seconds=0.25, realised_saved_seconds=-0.5))
    total.add(StepCounters("ngram", chosen_lengths=[1], expected_saved_seconds=0.75, acceptance=[0.8, 0.6]))
    assert total.chosen_lengths == [2, 1, 2]
    assert (total.switched_off, total.predicted_seconds, total.measured_seconds) == (1, 0.5, 0.25)
    assert (total.expected_saved_seconds, total.realised_saved_seconds) == (0.75, -0.5)
    assert total.acceptance == [0.8, 0.6]
    assert StepCounters.from_payload(total.to_payload()) == total


def test_prometheus_shows_what_the_policy_decided():
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    exporter.add([StepCounters("ngram", chosen_lengths=[3, 0, 2], switched_off=2, acceptance=[0.9, 0.5]).to_payload()])
    steps = StepCounters("ngram", predicted_seconds=0.5, measured_seconds=0.25, acceptance=[0.8, 0.5])
    steps.expected_saved_seconds, steps.realised_saved_seconds = 0.125, -0.25
    exporter.add([steps.to_payload()])

    def value(name, **labels):
        return registry.get_sample_value(f"vllm_spec_plugin:{name}", {"method": "ngram"} | labels)

    assert value("draft_length_count") == 5
    assert value("draft_length_sum") == 4
    assert value("draft_length_bucket", le="0.0") == 3
    assert value("switched_off_total") == 2
    assert value("predicted_step_seconds_total") == 0.5
    assert value("measured_step_seconds_total") == 0.25
    assert value("expected_saved_seconds") == 0.125
    assert value("realised_saved_seconds") == -0.25
    assert value("estimated_acceptance", position="0") == 0.8


def test_counters_of_several_proposers_stay_apart():
    total = CountersByMethod([StepCounters("ngram", drafts=1)])
    total.of("draft_model").drafts += 2
    total.add(CountersByMethod([StepCounters("ngram", drafts=4)]))
    total.of("ngram").count_chosen(2)
    again = CountersByMethod.from_payload(total.to_payload())
    assert again.of("ngram") == StepCounters("ngram", drafts=5, chosen_lengths=[0, 0, 1])
    assert again.of("draft_model") == StepCounters("draft_model", drafts=2)
    assert CountersByMethod().to_payload() == []
