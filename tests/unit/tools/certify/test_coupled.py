"""Seeded outputs, compared token by token: rounding passes, other noise and other logits do not."""

import dataclasses

import numpy as np
import pytest

from vllm_spec_tools.certify.coupled import compare
from vllm_spec_tools.certify.target_probabilities import Floats
from vllm_spec_tools.engines.jobs import JobOutput

NUM_OUTPUTS, LENGTH, VOCABULARY = 200, 40, 8
THRESHOLD = 1e-3 / 3


def sampled(logits: Floats, noise: Floats) -> list[JobOutput]:
    """Samples outputs of [outputs, length, vocabulary] logits, whatever the tokens before."""
    outputs = []
    for rows, gumbel in zip(logits, noise, strict=True):
        tokens = (rows + gumbel).argmax(-1).tolist()
        logprobs = [
            {int(row.argmax()): float(row.max()), token: float(row[token])}
            for row, token in zip(rows, tokens, strict=True)
        ]
        outputs.append(JobOutput(tokens, "", "length", None, logprobs))
    return outputs


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def logits(rng: np.random.Generator) -> Floats:
    return rng.normal(size=(NUM_OUTPUTS, LENGTH, VOCABULARY)) * 2


@pytest.fixture
def noise(rng: np.random.Generator) -> Floats:
    return rng.gumbel(size=(NUM_OUTPUTS, LENGTH, VOCABULARY))


def test_equal_outputs_are_exact_and_show_small_faults(logits: Floats, noise: Floats) -> None:
    outputs = sampled(logits, noise)
    found = compare(outputs, outputs)
    assert (found.num_tokens, found.differing, found.p_value) == (NUM_OUTPUTS * LENGTH, [], 1.0)
    assert not found.is_wrong(THRESHOLD, 1e-4)
    fault = found.smallest_fault(THRESHOLD)
    assert fault is not None
    # One of 8,000 tokens is an alarm: (1 - 3 / 8,000) ** 8,000 = 5%.
    assert fault == pytest.approx(3 / 8000, rel=0.1)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.02])
def test_rounding_of_the_logits_is_no_fault(
    size: float, logits: Floats, noise: Floats, rng: np.random.Generator
) -> None:
    """Whatever the precision: what is allowed follows from the logits."""
    found = compare(sampled(logits + rng.normal(size=logits.shape) * size, noise), sampled(logits, noise))
    assert bool(found.differing) is (size > 1e-5)
    assert not found.is_wrong(THRESHOLD, 5 * size)
    assert found.is_wrong(THRESHOLD, size / 100)


def test_a_token_in_a_hundred_with_other_noise_is_a_fault(
    logits: Floats, noise: Floats, rng: np.random.Generator
) -> None:
    other = np.where(rng.random((NUM_OUTPUTS, LENGTH, 1)) < 0.01, rng.gumbel(size=noise.shape), noise)
    found = compare(sampled(logits, other), sampled(logits, noise))
    # Of the changed ones more than a third has the same token all the same.
    assert 20 < len(found.differing) < 60
    assert found.share_beyond(0) == 0
    assert found.is_wrong(THRESHOLD, 1e-4)
    assert found.p_value < 1e-12


def test_logits_of_other_positions_are_a_fault(logits: Floats, noise: Floats) -> None:
    """Though all tokens are the same."""
    outputs = sampled(logits, noise)
    shown = [
        {**row, token: value - 0.5} if (value := row[token]) < max(row.values()) else row
        for row, token in zip(outputs[0].logprobs or [], outputs[0].token_ids, strict=True)
    ]
    found = compare([dataclasses.replace(outputs[0], logprobs=shown)], outputs[:1])
    assert not found.differing
    assert found.is_wrong(THRESHOLD, 1e-4)


def test_an_output_that_ends_early_differs_there() -> None:
    row = {1: 0.0}
    long, short = (JobOutput([1] * n, "", "length", None, [row] * n) for n in (3, 2))
    assert compare([short], [long]).differing == [(0, 2)]
    assert compare([long], [short]).differing == [(0, 2)]
    assert compare([short], [long]).num_tokens == 3
    assert compare([], []).p_value == 1.0
