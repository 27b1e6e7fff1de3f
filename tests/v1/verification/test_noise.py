"""The hash noise of seeded requests."""

import torch

from vllm_spec_plugin.v1.verification.noise import Noise, position_keys, signed

# Seeds 0, 7 and 2**64 - 1 at output positions 0, 5 and 1,000,000: keys, uniforms of two trials, exponentials.
KEYS = [-2152535657050944081, 8854431476379712064, -2163935617279550624]
UNIFORMS = [
    [0.9981113547021903, 0.4660746416439669, 0.8814599360030606],
    [0.12721528195349502, 0.3364732884648904, 0.6229459318517885],
]
EXPONENTIALS = [
    [1.0845541954040527, 1.312559723854065, 1.3035478591918945, 0.7336159944534302],
    [0.9207156896591187, 0.0038602647837251425, 1.5920798778533936, 1.4669528007507324],
    [1.2359800338745117, 0.24134768545627594, 0.06328505277633667, 0.11189348250627518],
]


def test_a_seeded_row_has_the_same_noise_in_any_batch(device):
    keys = position_keys(torch.tensor([3, 4], device=device), torch.tensor([10, 11], device=device))
    both = Noise(50, device, keys, torch.tensor([True, True], device=device))
    alone = Noise(50, device, keys[1:], torch.tensor([True], device=device))
    rows, row = torch.tensor([0, 1], device=device), torch.tensor([0], device=device)
    assert torch.equal(both.exponential(rows)[1], alone.exponential(row)[0])
    assert torch.equal(both.uniform(rows)[1], alone.uniform(row)[0])
    assert not torch.equal(both.exponential(rows)[0], both.exponential(rows)[1])


def test_unseeded_rows_use_torch(device):
    keys = torch.zeros(2, dtype=torch.int64, device=device)
    noise = Noise(10_000, device, keys, torch.tensor([True, False], device=device))
    torch.manual_seed(0)
    rows, weights = torch.tensor([0, 1], device=device), torch.ones(2, 10_000, device=device)
    first, second = noise.sample(weights, rows).tolist(), noise.sample(weights, rows).tolist()
    assert first[0] == second[0] == int(noise.exponential(rows[:1]).argmin())
    assert first[1] != second[1]


def test_seeded_noise_is_the_same_on_every_device(device):
    """Against written-down values: uniforms to the last bit, exponentials up to the last bit of their logarithm."""
    seeds, positions = torch.tensor([0, 7, signed(2**64 - 1)]), torch.tensor([0, 5, 1_000_000])
    keys = position_keys(seeds.to(device), positions.to(device))
    noise = Noise(4, device, keys, torch.ones(3, dtype=torch.bool, device=device))
    rows = torch.arange(3, device=device)
    assert keys.tolist() == KEYS
    assert [noise.uniform(rows, trial).tolist() for trial in (0, 1)] == UNIFORMS
    torch.testing.assert_close(noise.exponential(rows).cpu(), torch.tensor(EXPONENTIALS), rtol=2**-23, atol=0)
