"""The hash noise of seeded requests."""

import numpy as np
import torch
from scipy.stats import kstest

from vllm_spec_plugin.verification.noise import Noise, hashed_uniform, position_keys, signed

CPU = torch.device("cpu")


def test_hashed_uniforms_are_uniform_and_uncorrelated():
    """100,000 values a row, Kolmogorov-Smirnov false alarm 1e-6 a row; a fixed function, no seed to vary."""
    keys = position_keys(torch.tensor([0, 0, 1, -5]), torch.tensor([0, 1, 0, 0]))
    values = hashed_uniform(keys[:, None], torch.arange(100_000)).numpy()
    assert all(kstest(row, "uniform").pvalue > 1e-6 for row in values)
    off_diagonal = np.corrcoef(values) - np.eye(4)
    assert np.abs(off_diagonal).max() < 0.02
    assert values.min() > 0
    assert values.max() < 1


def test_a_seeded_row_has_the_same_noise_in_any_batch():
    keys = position_keys(torch.tensor([3, 4]), torch.tensor([10, 11]))
    both = Noise(50, CPU, keys, torch.tensor([True, True]))
    alone = Noise(50, CPU, keys[1:], torch.tensor([True]))
    rows, row = torch.tensor([0, 1]), torch.tensor([0])
    assert torch.equal(both.exponential(rows)[1], alone.exponential(row)[0])
    assert torch.equal(both.uniform(rows)[1], alone.uniform(row)[0])
    assert not torch.equal(both.exponential(rows)[0], both.exponential(rows)[1])


def test_unseeded_rows_use_torch_and_are_positive():
    noise = Noise(10_000, CPU, torch.zeros(2, dtype=torch.int64), torch.tensor([True, False]))
    torch.manual_seed(0)
    first = noise.exponential(torch.tensor([0, 1]))
    second = noise.exponential(torch.tensor([0, 1]))
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert bool((first > 0).all())


def test_seeds_beyond_int64_keep_their_bits():
    assert signed(2**64 - 1) == -1
    assert signed(2**63) == -(2**63)
    assert signed(12345) == 12345


def test_each_trial_at_a_row_has_its_own_uniform():
    """1,000 rows, correlation of independent uniforms below 0.2; a fixed function, no seed to vary."""
    keys = position_keys(torch.arange(1000), torch.arange(1000))
    noise, rows = Noise(10, CPU, keys, torch.ones(1000, dtype=torch.bool)), torch.arange(1000)
    trials = np.stack([noise.uniform(rows, trial).numpy() for trial in range(4)])
    assert np.array_equal(trials[0], noise.uniform(rows).numpy())
    assert np.array_equal(trials[0], hashed_uniform(keys, torch.full_like(keys, -2)).numpy())
    assert np.abs(np.corrcoef(trials) - np.eye(4)).max() < 0.2


def test_no_trial_uses_the_noise_of_a_draft_draw():
    keys = position_keys(torch.tensor([3]), torch.tensor([8]))
    noise = Noise(10, CPU, keys, torch.tensor([True]))
    trials = [noise.uniform(torch.tensor([0]), trial).item() for trial in range(8)]
    draws = [hashed_uniform(keys, torch.tensor([-3 - 2 * sibling])).item() for sibling in range(8)]
    assert len({*trials, *draws}) == 16
