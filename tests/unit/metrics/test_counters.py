"""Adding up steps, and showing them."""

import time
from dataclasses import fields

from prometheus_client import CollectorRegistry

from vllm_spec_plugin import __version__
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters, Timing
from vllm_spec_plugin.metrics.prometheus import Exporter

NUMBERS = [field.name for field in fields(StepCounters) if field.type in ("int", "float", int, float)]
# Metrics without a label `method`; of the others, what is named otherwise than its counter.
OF_ALL_METHODS = {
    "verification_seconds",
    "tree_seconds",
    "kv_blocks_reserved",
    "kv_blocks_rolled_back",
    "requests_without_salt",
}
NAMES = {"predicted_seconds": "predicted_step_seconds", "measured_seconds": "measured_step_seconds"}
ENGINE = {"model_name": "served", "engine": "1"}
# A saving may be a loss.
GAUGES = {"expected_saved_seconds", "realised_saved_seconds"}


def step(times: int) -> StepCounters:
    """Each number is its place in `NUMBERS`, `times` times; the lists are as long."""
    made = StepCounters("ngram", **{name: place * times for place, name in enumerate(NUMBERS, 1)})  # type: ignore[arg-type]
    made.count_error("raised")
    for reason in ("resumable", *["thinking_budget"] * times):
        made.count_without_drafts(reason)
    made.count_verified(2 * times, times)
    made.count_chosen(times)
    made.ended, made.acceptance = [(0.5, 1.0 + times)], [0.9, times / 10]
    made.max_draft_tokens = [2 - times]
    return made


def test_blocks_of_code_are_timed(monkeypatch):
    clock = iter([5.0, 5.25, 7.0, 7.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    counters = StepCounters("ngram")
    for _ in range(2):
        with Timing(counters, "tree_seconds"):
            pass
    assert (counters.tree_seconds, counters.verification_seconds) == (0.75, 0.0)


def test_steps_add_up_and_travel():
    total = StepCounters("ngram")
    for times in (1, 2):
        total.add(step(times))
    assert [getattr(total, name) for name in NUMBERS] == [3 * place for place in range(1, len(NUMBERS) + 1)]
    assert len(NUMBERS) > 12
    assert total.proposer_errors == {"raised": 2}
    assert total.without_drafts == {"resumable": 2, "thinking_budget": 3}
    assert (total.verified_per_position, total.accepted_per_position) == ([2, 2, 1, 1], [2, 1])
    assert total.chosen_lengths == [0, 1, 1]
    assert total.ended == [(0.5, 2.0), (0.5, 3.0)]
    # The latest estimate and the latest limit replace earlier ones.
    assert (total.acceptance, total.max_draft_tokens) == ([0.9, 0.2], [0])
    assert StepCounters.from_payload(total.to_payload()) == total


def test_prometheus_shows_the_sums():
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    for times in (1, 2):
        exporter.add([step(times).to_payload()], **ENGINE)

    def value(name, **labels):
        return registry.get_sample_value(f"vllm_spec_plugin:{name}", ENGINE | labels)

    for place, name in enumerate(NUMBERS, 1):
        suffix = "" if name in GAUGES else "_total"
        labels = {} if name in OF_ALL_METHODS else {"method": "ngram"}
        assert value(NAMES.get(name, name) + suffix, **labels) == 3 * place, name
    assert value("proposer_errors_total", method="ngram", reason="raised") == 2
    assert value("proposer_errors_total", method="ngram", reason="bad_probabilities") == 0
    assert value("requests_without_drafts_total", reason="thinking_budget") == 3
    assert value("requests_without_drafts_total", reason="pooling") == 0
    assert value("verified_tokens_total", method="ngram", position="2") == 1
    assert value("accepted_tokens_total", method="ngram", position="0") == 2
    assert value("estimated_acceptance", method="ngram", position="1") == 0.2
    assert value("max_draft_tokens") == 0
    assert value("request_acceptance_rate_sum", method="ngram") == 1
    assert value("request_acceptance_length_sum", method="ngram") == 5
    assert [value(f"draft_length_{kind}", method="ngram") for kind in ("count", "sum")] == [2, 3]
    assert value("draft_length_bucket", method="ngram", le="1.0") == 1
    chosen = [5, 0, 1] + [0] * 8 + [7] + [0] * 58 + [2]
    exporter.add([StepCounters("medusa", chosen_lengths=chosen).to_payload()], **ENGINE)
    buckets = ("0.0", "1.0", "2.0", "10.0", "12.0", "64.0", "+Inf")
    assert [value("draft_length_bucket", method="medusa", le=le) for le in buckets] == [5, 5, 6, 6, 13, 13, 15]
    assert [value(f"draft_length_{kind}", method="medusa") for kind in ("count", "sum")] == [15, 2 + 77 + 2 * 70]
    exporter.add([StepCounters("ngram", realised_saved_seconds=-1000.0).to_payload()], **ENGINE)
    assert value("realised_saved_seconds", method="ngram") < 0
    before = value("requests_without_salt_total")
    exporter.add([StepCounters("suffix", requests_without_salt=1).to_payload()], **ENGINE)
    assert value("requests_without_salt_total") == before + 1


def test_an_engine_shows_what_it_serves_and_counts_from_zero():
    """Replicas have series of their own: vLLM's labels tell them apart."""
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    data = {"proposer": {"method": "cascade", "proposers": [{"method": "suffix"}, {"method": "prediction"}]}}
    lossy = parse_config({**data, "verification": {"lenience": 0.5}}, "spec.yaml")
    for engine, config in (("0", lossy), ("1", parse_config(data, "spec.yaml"))):
        exporter.start(config.summary, ["cascade", "suffix", "prediction"], 4, "served", engine)
    exporter.add([StepCounters("suffix", drafts=3).to_payload()], "served", "1")
    known = {"version": __version__, "methods": "suffix > prediction", "policy": "optimal", "tokens": "4"}
    for engine, exactness in (("0", {"exact": "false", "lenience": "0.5"}), ("1", {"exact": "true", "lenience": "1"})):
        labels = {"model_name": "served", "engine": engine}
        assert registry.get_sample_value("vllm_spec_plugin:info", labels | known | exactness) == 1
        for method in ("cascade", "suffix", "prediction"):
            drafts = registry.get_sample_value("vllm_spec_plugin:drafts_total", labels | {"method": method})
            assert drafts == (3 if (method, engine) == ("suffix", "1") else 0)


def test_a_request_that_ends_tells_how_its_drafts_fared():
    log = AcceptanceLog()
    log.verified("a", 4, 4)
    log.verified("a", 4, 1)
    log.verified("b", 2, 0)
    assert log.ended("a") == (5 / 8, 1 + 5 / 2)
    assert log.ended("b") == (0, 1)
    assert log.ended("a") is None


def test_counters_of_several_proposers_stay_apart():
    total = CountersByMethod([StepCounters("ngram", drafts=1)])
    total.of("draft_model").drafts += 2
    total.add(CountersByMethod([StepCounters("ngram", drafts=4)]))
    total.of("ngram").count_chosen(2)
    again = CountersByMethod.from_payload(total.to_payload())
    assert again.of("ngram") == StepCounters("ngram", drafts=5, chosen_lengths=[0, 0, 1])
    assert again.of("draft_model") == StepCounters("draft_model", drafts=2)
    assert CountersByMethod().to_payload() == []
