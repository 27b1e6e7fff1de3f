"""Adding up steps, and showing them."""

from prometheus_client import CollectorRegistry

from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter


def test_steps_add_up():
    total = StepCounters("ngram", drafts=1, draft_tokens=4, proposer_seconds=0.5, kv_blocks_reserved=2)
    total.count_error("raised")
    other = StepCounters("ngram", drafts=2, draft_tokens=5, verification_seconds=0.25, proposer_errors={"raised": 2})
    total.add(other)
    total.add(StepCounters("ngram", kv_blocks_reserved=1, kv_blocks_rolled_back=4, drafts_cut_for_memory=5))
    assert total == StepCounters("ngram", 3, 9, {"raised": 3}, 0.5, 0.25, 3, 4, 5)


def test_payload_round_trips():
    counters = StepCounters("ngram", drafts=1, proposer_errors={"raised": 2})
    assert StepCounters.from_payload(counters.to_payload()) == counters


def test_prometheus_shows_sums_and_zero_errors():
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    exporter.add(StepCounters("ngram", drafts=2, draft_tokens=7, proposer_errors={"raised": 1}).to_payload())
    exporter.add(StepCounters("ngram", drafts=1, verification_seconds=0.5).to_payload())
    for _ in range(2):
        memory = StepCounters("ngram", kv_blocks_reserved=1, kv_blocks_rolled_back=2, drafts_cut_for_memory=3)
        exporter.add(memory.to_payload())

    def value(name, **labels):
        return registry.get_sample_value(f"vllm_spec_plugin:{name}_total", labels)

    assert value("drafts", method="ngram") == 3
    assert value("draft_tokens", method="ngram") == 7
    assert value("proposer_errors", method="ngram", reason="raised") == 1
    assert value("proposer_errors", method="ngram", reason="bad_probabilities") == 0
    assert value("verification_seconds") == 0.5
    assert value("kv_blocks_reserved") == 2
    assert value("kv_blocks_rolled_back") == 4
    assert value("drafts_cut_for_memory", method="ngram") == 6
