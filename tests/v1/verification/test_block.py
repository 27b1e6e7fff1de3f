"""Block verification as implemented: every outcome of every test, and sampled; against the oracle, which is exact."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from tests.unit import p_values
from tests.unit.random_cases import random_cases
from tests.v1.verification.block_oracle import floats, next_token, random_drafting, weights_and_thresholds
from tests.v1.verification.cases import VOCAB, as_logits, as_probs, random_case, verify_many
from vllm_spec_plugin.v1.verification import block
from vllm_spec_plugin.v1.verification.chain import NO_TOKEN, verify_chain
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise, position_keys

# From a threshold to the uniforms on either side of it: above the rounding of float32.
NEAR = 1e-5


class GivenNoise(Noise):
    """Tests that pass or fail as wanted; and what the last tokens are drawn from is kept."""

    def __init__(self, uniforms, vocab_size, device):
        super().__init__(vocab_size, device)
        # The class is frozen.
        self.__dict__["kept"] = {"uniforms": uniforms}

    def uniform(self, rows, trial=0):
        """Reads the uniform of a request's first row and one of its draft tokens."""
        return self.__dict__["kept"]["uniforms"][rows, trial]

    def sample(self, weights, rows):
        """The most likely tokens."""
        self.__dict__["kept"]["drawn_from"] = weights / weights.sum(-1, keepdim=True)
        return weights.argmax(-1)


def cells(thresholds):
    """Uniforms on either side of every threshold, in all combinations; each test that may pass or fail does so."""
    sides = [{max(h - NEAR, 0) if h > NEAR else h + NEAR, h + NEAR if h < 1 - NEAR else 0.5} for h in thresholds]
    return itertools.product(*map(sorted, sides))


@pytest.mark.parametrize("shape", ["dense", "sparse"])
@pytest.mark.parametrize(("vocab_size", "depth"), [(2, 1), (2, 2), (2, 3), (3, 2), (3, 3)])
@random_cases(8, 80)
def test_every_decision_and_every_residual_are_the_oracles(rng, vocab_size, depth, shape, device):
    """All drafts of a pair in one ragged batch, each with all outcomes of its tests."""
    drafting = random_drafting(rng, vocab_size, depth, stops=0.2)
    steps = []
    for draft, _ in drafting.all_drafts():
        p, q = map(floats, drafting.rows(draft))
        weights, thresholds = weights_and_thresholds(p, q, draft)
        steps += [(p, q, draft, weights, thresholds, uniforms) for uniforms in cells(thresholds)]
    rows = Rows.of([len(draft) for _, _, draft, *_ in steps], device)
    uniforms = torch.zeros(len(rows.request), depth, dtype=torch.float64)
    for first, (*_, given) in zip(rows.first.tolist(), steps, strict=True):
        uniforms[first, : len(given)] = torch.tensor(given)
    noise = GivenNoise(uniforms.to(device), vocab_size, device)
    drafts = torch.tensor([x for step in steps for x in step[2]], dtype=torch.int64, device=device)
    draft_probs = as_probs([step[1] for step in steps], shape, device, vocab_size)
    logits = as_logits([step[0] for step in steps], device)
    output = verify_chain(logits, drafts, draft_probs, rows, False, noise, method="block").tolist()
    drawn_from = noise.__dict__["kept"]["drawn_from"].tolist() if len(drafts) else None
    for i, (p, q, draft, weights, thresholds, given) in enumerate(steps):
        passed = [place + 1 for place, (u, h) in enumerate(zip(given, thresholds, strict=True)) if u < h]
        count = max(passed, default=0)
        assert [token for token in output[i] if token != NO_TOKEN][:-1] == list(draft[:count])
        expected = next_token(p, q, count, len(draft), weights)
        if drawn_from:
            np.testing.assert_allclose(drawn_from[i], expected, atol=NEAR)


def test_lenience_is_for_tokens(device):
    case = random_case(np.random.default_rng(2))
    with pytest.raises(ValueError, match=r"lenience 0.5 needs method token"):
        verify_many(case, "dense", 1, device, lenience=0.5, method="block")


@random_cases(10, 100)
def test_rows_of_large_vocabularies_are_compared_as_those_of_small_ones(rng, device, monkeypatch):
    """As on a GPU: row by row, and several rows at a time."""
    case = random_case(rng)
    seeds, outputs = torch.arange(50 * len(case.drafts)), []
    for most in (VOCAB, 2 * VOCAB, 1000):
        monkeypatch.setattr(block, "_COMPARED_AT_ONCE", most)
        outputs.append(verify_many(case, "dense", 50, device, seeds=seeds, method="block"))
    assert outputs[0] == outputs[1] == outputs[2]


def texts_of_steps(target, draft, num_tokens, depth, seeds):
    """[n, num_tokens]: texts of seeded requests, whose tokens depend on the one before; steps until each has enough."""
    rng, n, vocab_size = np.random.default_rng(11), len(seeds), target.shape[1]
    texts = [[0] for _ in range(n)]
    while waiting := [i for i in range(n) if len(texts[i]) <= num_tokens]:
        size, own = len(waiting), np.array([texts[i][-1] for i in waiting])
        positions = torch.tensor([len(texts[i]) - 1 for i in waiting])
        drafts, rows_of_q, rows_of_p = [], [], []
        for _ in range(depth):
            rows_of_q.append(draft[own])
            rows_of_p.append(target[own])
            own = (draft[own].cumsum(1) < rng.random(size)[:, None]).sum(1).clip(max=vocab_size - 1)
            drafts.append(own)
        rows_of_p.append(target[own])
        rows = Rows.of([depth] * size, torch.device("cpu"))
        keys = position_keys(seeds[waiting][rows.request], positions[rows.request] + rows.offset)
        noise = Noise(vocab_size, keys.device, keys, torch.ones(len(keys), dtype=torch.bool))
        p, q = (np.stack(lines, 1).reshape(-1, vocab_size) for lines in (rows_of_p, rows_of_q))
        tokens = torch.from_numpy(np.stack(drafts, 1).flatten())
        logits, draft_probs = torch.tensor(p).float().log(), torch.tensor(q).float()
        output = verify_chain(logits, tokens, draft_probs, rows, False, noise, method="block").tolist()
        for i, line in zip(waiting, output, strict=True):
            texts[i] += [token for token in line if token != NO_TOKEN]
    return [tuple(text[1 : 1 + num_tokens]) for text in texts]


EVEN = np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0.8, 0.2], [0.2, 0.8]])
# Residuals of two tokens, of which w changes the proportion.
UNEVEN = np.tile([0.2, 0.35, 0.45], (3, 1)), np.tile([0.7, 0.2, 0.1], (3, 1))


def p_value_of_texts(pair, depth):
    """Chi-square of all texts of four tokens, 60,000 seeds, over one to four steps each."""
    target, draft = pair
    found = Counter(texts_of_steps(target, draft, 4, depth, torch.arange(60_000) * 7919))
    texts = list(itertools.product(range(len(target)), repeat=4))
    expected = [np.prod([target[a, b] for a, b in itertools.pairwise((0, *text))]) for text in texts]
    return p_values.chi_square([found[text] for text in texts], expected)


@pytest.mark.parametrize(("pair", "depth"), [(EVEN, 2), (UNEVEN, 3), (EVEN, 4)], ids=["even", "uneven", "deep"])
def test_steps_of_a_seeded_request_are_independent(pair, depth):
    """The joint distribution of tokens from several steps is the target's. False alarm 1e-6 each."""
    assert p_value_of_texts(pair, depth) > 1e-6
