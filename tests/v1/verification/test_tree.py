"""Tree verification against the oracle, against chains, and in its corners."""

import numpy as np
import pytest
import torch

from tests.unit.random_cases import random_cases
from tests.v1.verification.cases import VOCAB, as_logits, random_case, verify_many
from tests.v1.verification.tree_cases import TreeCase, outputs, random_batch, seeded_noise, verify
from tests.v1.verification.tree_oracle import greedy_output, sampled_output
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.v1.verification.tree import verify_tree
from vllm_spec_plugin.v1.verification.tree_rows import TreeRows
from vllm_spec_plugin.verification.topology import chain, topology

PAIR = topology([(0,), (1,)])
UNDRAFTED = np.zeros((0, VOCAB))


def expected_verdict(case, rows, i, noise, is_greedy):
    """Request `i`'s output, rows and node by the oracle, with the step's own noise."""
    first, device = int(rows.first[i]), rows.first.device
    if is_greedy:
        tokens, decided, node = greedy_output(case.tree, case.p.astype(np.float32), case.tokens)
    else:
        tokens, decided, node = sampled_output(
            case.tree,
            case.p,
            case.tokens,
            case.q,
            lambda row, trial: noise.uniform(torch.tensor([first + row], device=device), trial).item(),
            lambda row: noise.exponential(torch.tensor([first + row], device=device))[0].double().cpu().numpy(),
        )
    missing = rows.width - len(tokens)
    return tokens + [-1] * missing, [first + row for row in decided + decided[-1:] * missing], node


@random_cases(50, 500)
def test_mixed_batches_are_decided_token_by_token_as_the_oracle_does(rng, device):
    """Trees, chains and nothing, greedy, seeded, and unseeded requests in one step; the unseeded are left to luck."""
    cases = random_batch(rng, missing=True)
    greedy = (rng.random(len(cases)) < rng.choice([0.3, 1.0])).tolist()
    seeds = rng.choice([-1, 3, 14, 159], len(cases)).tolist()
    verdict = verify(cases, rng.choice(["dense", "sparse"]), device, greedy, seeds)
    rows = TreeRows.of([case.tree for case in cases], device)
    noise = seeded_noise(rows, seeds)
    for i, case in enumerate(cases):
        if not greedy[i] and seeds[i] < 0:
            continue
        tokens, decided, node = expected_verdict(case, rows, i, noise, greedy[i])
        assert verdict.token_ids[i].tolist() == tokens
        assert verdict.rows[i].tolist() == decided
        assert int(verdict.nodes[i]) == node


def as_chains(case):
    """A step of chains as trees."""
    per_request = zip(case.p, case.drafts, case.q, strict=True)
    return [TreeCase(chain(len(drafts)), p, drafts, q) for p, drafts, q in per_request]


@random_cases(20, 200)
@pytest.mark.parametrize("greedy", [False, True])
def test_seeded_chains_are_decided_as_verify_chain_does(rng, device, greedy):
    shape = rng.choice(["dense", "sparse", "none"])
    case = random_case(rng, point_mass=shape == "none")
    seeds = torch.arange(len(case.drafts)) + int(rng.integers(10))
    are_greedy = [greedy] * len(case.drafts)
    [expected] = verify_many(case, shape, 1, device, are_greedy, seeds)
    assert outputs(verify(as_chains(case), shape, device, are_greedy, seeds)) == expected


class _SmallestNoise(Noise):
    """Accepts whatever may be accepted at all."""

    def uniform(self, rows, trial=0):
        return torch.zeros(len(rows), dtype=torch.float64, device=self.device)


def test_impossible_tokens_are_not_kept_even_with_the_smallest_noise(device):
    """First sibling: p = 0 < q. Second: q = 0, whatever p is; it can't have been drawn from that."""
    rows = TreeRows.of([PAIR, PAIR], device)
    logits = as_logits([np.array([[0.34, 0.04, 0.33, 0.29, 0.0]] * 6)], device)
    drafts = torch.tensor([4, 0, 4, 4], device=device)
    probs = torch.tensor([[0, 0, 0, 0.5, 0.5]] * 2 + [[0, 0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5, 0]], device=device)
    greedy = torch.tensor([False, False], device=device)
    verdict = verify_tree(logits, drafts, probs, rows, greedy, _SmallestNoise(VOCAB, device))
    assert verdict.nodes.tolist() == [-1, -1]


def test_a_step_without_requests_or_drafts(device):
    rows = TreeRows.of([], device)
    nothing = torch.zeros(0, dtype=torch.int64, device=device)
    logits = torch.zeros(0, VOCAB, device=device)
    verdict = verify_tree(logits, nothing, None, rows, nothing.bool(), Noise(VOCAB, device))
    assert verdict.token_ids.shape == verdict.rows.shape == (0, 1)
    case = TreeCase(chain(0), np.eye(VOCAB)[[3]], [], UNDRAFTED)
    assert outputs(verify([case, case], "dense", device)) == [[3], [3]]
