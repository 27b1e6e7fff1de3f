"""The running median is that of the window, in any order of values."""

import statistics

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.running_median import RunningMedian

from .curves import SEED


def test_it_is_the_median_of_the_last_values():
    # Few different values, so that equal ones leave and stay.
    values = np.random.default_rng(SEED).integers(0, 9, 500).tolist()
    running = RunningMedian(7)
    for i, value in enumerate(values):
        running.add(value)
        window = values[max(0, i - 6) : i + 1]
        assert len(running) == len(window)
        assert running.median(-1) == statistics.median_high(window)


def test_it_is_the_default_of_nothing():
    assert RunningMedian(3).median(5.0) == 5.0
