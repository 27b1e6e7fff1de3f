"""A fall of acceptance is seen against the long-run mean, and chance is not taken for one."""

import numpy as np
from prometheus_client import CollectorRegistry

from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.drift import LEAST_EARLIER, RECENT, AcceptanceDrift
from vllm_spec_plugin.metrics.prometheus import Exporter

ENGINE = {"model_name": "served", "engine": "1"}


def followed(rates: np.ndarray) -> AcceptanceDrift:
    drift = AcceptanceDrift()
    for rate in rates:
        drift.ended(float(rate))
    return drift


def rates(mean: float, count: int, seed: int) -> np.ndarray:
    """Requests of 40 draft tokens, each with its own probability of acceptance."""
    rng = np.random.default_rng(seed)
    return rng.binomial(40, rng.beta(8 * mean, 8 * (1 - mean), count)) / 40


def test_without_a_change_it_is_a_standard_normal() -> None:
    """2,000 servers, seeds 0 to 1999: the standard error of the mean is 0.022, of the deviation 0.016; 5 of each."""
    found = np.array([followed(rates(0.6, 600, seed)).sigmas for seed in range(2000)], np.float64)
    assert abs(found.mean()) < 0.11
    assert abs(found.std() - 1) < 0.08


def test_a_fall_is_seen_and_later_the_new_mean() -> None:
    before, after = rates(0.7, 500, 0), rates(0.4, RECENT, 1)
    sigmas = followed(np.concatenate([before, after])).sigmas
    assert sigmas is not None
    assert sigmas < -8
    better = followed(np.concatenate([rates(0.4, 500, 0), rates(0.7, RECENT, 1)])).sigmas
    assert better is not None
    assert better > 8
    later = followed(np.concatenate([before, rates(0.4, 60_000, 2)])).sigmas
    assert later is not None
    assert abs(later) < 4


def test_there_is_none_before_there_are_enough_requests() -> None:
    assert followed(rates(0.7, RECENT + LEAST_EARLIER - 1, 0)).sigmas is None
    assert followed(rates(0.7, RECENT + LEAST_EARLIER, 0)).sigmas is not None


def test_drafts_that_are_always_accepted_do_not_drift_by_one_token() -> None:
    sigmas = followed(np.append(np.ones(1000), 0.98)).sigmas
    assert sigmas is not None
    assert -1 < sigmas < 0


def test_it_is_a_metric_of_each_method() -> None:
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    labels = {**ENGINE, "method": "suffix"}
    for rate in np.concatenate([np.full(400, 0.8), np.full(RECENT, 0.2)]):
        step = StepCounters("suffix")
        step.ended = [(float(rate), 2.0)]
        exporter.add([step.to_payload()], ENGINE["model_name"], ENGINE["engine"])
        assert (registry.get_sample_value("vllm_spec_plugin:acceptance_drift", labels) or 0.0) > -1 or rate == 0.2
    assert (registry.get_sample_value("vllm_spec_plugin:acceptance_drift", labels) or 0.0) < -3
