"""Tree verification against the oracle, against chains, and in its corners."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.sizes import examples
from tests.unit.verification.cases import VOCAB, verify_many
from tests.unit.verification.cases import cases as chain_cases
from tests.unit.verification.oracle import output_distribution as chain_distribution
from tests.unit.verification.test_chain import FALSE_ALARM, p_value
from tests.unit.verification.tree_cases import (
    CPU,
    TreeCase,
    batches,
    outputs,
    seeded_noise,
    tree_cases,
    verify,
)
from tests.unit.verification.tree_oracle import greedy_output, output_distribution, sampled_output
from vllm_spec_plugin.verification import tree as tree_module
from vllm_spec_plugin.verification.noise import Noise
from vllm_spec_plugin.verification.topology import chain, topology
from vllm_spec_plugin.verification.tree import verify_tree
from vllm_spec_plugin.verification.tree_rows import TreeRows

SAMPLES = 1000
PAIR = topology([(0,), (1,)])
UNDRAFTED = np.zeros((0, VOCAB))

relaxed = partial(settings, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def assert_as_oracle(case, shape, seeds=None):
    observed = outputs(verify([case] * SAMPLES, shape, seeds=seeds))
    expected = output_distribution(case.tree, case.p, case.tokens, case.q)
    assert p_value(observed, expected) > FALSE_ALARM


@relaxed(max_examples=examples(15, 100))
@given(tree_cases(missing=True), st.sampled_from(["dense", "sparse"]))
def test_outputs_are_distributed_as_the_oracle_says(case, shape):
    """1,000 samples a case, false alarm 1e-7 each, seed 1."""
    torch.manual_seed(1)
    assert_as_oracle(case, shape)


@relaxed(max_examples=examples(10, 50))
@given(tree_cases(certain=True), st.sampled_from(["none", "dense", "sparse"]))
def test_certain_drafts_are_distributed_as_the_oracle_says(case, shape):
    """1,000 samples a case, false alarm 1e-7 each, seed 2."""
    torch.manual_seed(2)
    assert_as_oracle(case, shape)


@relaxed(max_examples=examples(10, 50))
@given(tree_cases(), st.sampled_from(["dense", "sparse"]))
def test_seeded_outputs_are_distributed_as_the_oracle_says(case, shape):
    """1,000 seeds a case, false alarm 1e-7 each."""
    assert_as_oracle(case, shape, seeds=torch.arange(SAMPLES) * 7919)


def expected_verdict(case, rows, i, noise, is_greedy):
    """Request `i`'s output, rows and node by the oracle, with the step's own noise."""
    first = int(rows.first[i])
    if is_greedy:
        tokens, decided, node = greedy_output(case.tree, case.p.astype(np.float32), case.tokens)
    else:
        tokens, decided, node = sampled_output(
            case.tree,
            case.p,
            case.tokens,
            case.q,
            lambda row, trial: noise.uniform(torch.tensor([first + row]), trial).item(),
            lambda row: noise.exponential(torch.tensor([first + row]))[0].double().numpy(),
        )
    missing = rows.width - len(tokens)
    return tokens + [-1] * missing, [first + row for row in decided + decided[-1:] * missing], node


@relaxed(max_examples=examples(50, 500))
@given(batches(missing=True), st.sampled_from(["dense", "sparse"]), st.randoms(use_true_random=False))
def test_mixed_batches_are_decided_token_by_token_as_the_oracle_does(cases, shape, random):
    """Trees, chains and nothing, greedy, seeded, and unseeded requests in one step; the unseeded are left to luck."""
    greedy = [random.random() < 0.3 for _ in cases]
    seeds = [random.choice([-1, 3, 14, 159]) for _ in cases]
    verdict = verify(cases, shape, greedy, seeds)
    rows = TreeRows.of([case.tree for case in cases], CPU)
    noise = seeded_noise(rows, seeds)
    for i, case in enumerate(cases):
        if not greedy[i] and seeds[i] < 0:
            continue
        tokens, decided, node = expected_verdict(case, rows, i, noise, greedy[i])
        assert verdict.token_ids[i].tolist() == tokens
        assert verdict.rows[i].tolist() == decided
        assert int(verdict.nodes[i]) == node


@relaxed(max_examples=examples(20, 200))
@given(batches(certain=True, missing=True), st.sampled_from(["none", "dense", "sparse"]))
def test_greedy_batches_are_decided_as_the_oracle_does(cases, shape):
    verdict = verify(cases, shape, greedy=[True] * len(cases))
    rows = TreeRows.of([case.tree for case in cases], CPU)
    for i, case in enumerate(cases):
        tokens, decided, node = expected_verdict(case, rows, i, None, True)
        assert verdict.token_ids[i].tolist() == tokens
        assert verdict.rows[i].tolist() == decided
        assert int(verdict.nodes[i]) == node


@relaxed(max_examples=examples(15, 100))
@given(batches(missing=True))
def test_a_seeded_request_does_not_depend_on_its_batch(cases):
    seeds = torch.arange(len(cases)) + 5
    together = outputs(verify(cases, "dense", seeds=seeds))
    assert together[0] == outputs(verify(cases[:1], "dense", seeds=seeds[:1]))[0]
    beside_greedy = outputs(verify(cases, "dense", greedy=[False] + [True] * (len(cases) - 1), seeds=seeds))
    assert together[0] == beside_greedy[0]


def as_chains(case):
    """A step of chains as trees."""
    per_request = zip(case.p, case.drafts, case.q, strict=True)
    return [TreeCase(chain(len(drafts)), p, drafts, q) for p, drafts, q in per_request]


@relaxed(max_examples=examples(20, 200))
@given(
    chain_cases(),
    chain_cases(point_mass=True),
    st.sampled_from(["dense", "sparse", "none"]),
    st.booleans(),
    st.integers(0, 9),
)
def test_seeded_chains_are_decided_as_verify_chain_does(drawn, certain, shape, greedy, seed):
    case = certain if shape == "none" else drawn
    seeds = torch.arange(len(case.drafts)) + seed
    [expected] = verify_many(case, shape, 1, greedy=greedy, seeds=seeds)
    assert outputs(verify(as_chains(case), shape, [greedy] * len(seeds), seeds)) == expected


@relaxed(max_examples=examples(6, 50))
@given(chain_cases(max_requests=1))
def test_unseeded_chains_are_distributed_as_verify_chain_says(case):
    """Both against the closed form of chains; 1,000 samples, false alarm 1e-7 each, seed 3."""
    torch.manual_seed(3)
    [tree_case] = as_chains(case)
    expected = chain_distribution(case.p[0], case.drafts[0], case.q[0])
    assert output_distribution(tree_case.tree, tree_case.p, tree_case.tokens, tree_case.q) == pytest.approx(expected)
    assert p_value(outputs(verify([tree_case] * SAMPLES, "dense")), expected) > FALSE_ALARM


@relaxed(max_examples=examples(15, 100))
@given(tree_cases(certain=True, missing=True), st.sampled_from(["none", "dense", "sparse"]), st.integers(0, 1000))
def test_seeded_output_does_not_depend_on_certain_drafts(case, shape, seed):
    """Its first token is the one that no drafts, and a chain of other drafts, give."""
    one = torch.tensor([seed])
    [drafted] = outputs(verify([case], shape, seeds=one))
    [undrafted] = outputs(verify([TreeCase(chain(0), case.p[:1], [], UNDRAFTED)], "none", seeds=one))
    assert drafted[0] == undrafted[0]


def drawn_siblings(count, p, q, replacement, seeded=False):
    """The verdict on `count` requests with two siblings drawn from q; after them p is uniform."""
    drafts = torch.multinomial(torch.tensor(q).expand(count, VOCAB), 2, replacement)
    rows = TreeRows.of([PAIR] * count, CPU)
    logits = torch.tensor(np.array([p, np.full(VOCAB, 0.2), np.full(VOCAB, 0.2)]), dtype=torch.float32).log()
    probs = torch.tensor(q, dtype=torch.float32).expand(count, 2, VOCAB).clone()
    if not replacement:
        probs[:, 1].scatter_(1, drafts[:, :1], 0)
        probs[:, 1] /= probs[:, 1].sum(-1, keepdim=True)
    greedy = torch.zeros(count, dtype=torch.bool)
    noise = seeded_noise(rows, torch.arange(count)) if seeded else Noise(VOCAB, CPU)
    return verify_tree(logits.repeat(count, 1), drafts.flatten(), probs.reshape(-1, VOCAB), rows, greedy, noise)


# A first rejection (token 3 mostly) leaves p_1(2) < q(2): the second trial's noise matters.
P, Q = np.array([0.34, 0.04, 0.33, 0.29, 0.0]), np.array([0.1, 0.05, 0.28, 0.52, 0.05])


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("replacement", [True, False])
def test_the_first_token_is_distributed_as_p_when_siblings_are_drawn(replacement, seeded, full):
    """Over draws from q, i.i.d. or without replacement. 6,000 samples (50,000), false alarm 1e-6, seed 4."""
    count = 50_000 if full else 6_000
    torch.manual_seed(4)
    verdict = drawn_siblings(count, P, Q, replacement, seeded)
    seen = np.bincount(verdict.token_ids[:, 0], minlength=VOCAB)
    assert seen[4] == 0
    assert chisquare(seen[:4], count * P[:4]).pvalue > 1e-6


@pytest.mark.parametrize("replacement", [True, False])
def test_siblings_taken_as_independent_draws_from_p_are_caught(replacement, monkeypatch):
    """The test above, on a scorer that compares each sibling with p itself. 6,000 samples, seed 4."""
    monkeypatch.setattr(tree_module._Step, "_reject", lambda *_: None)
    torch.manual_seed(4)
    verdict = drawn_siblings(6_000, P, Q, replacement)
    seen = np.bincount(verdict.token_ids[:, 0], minlength=VOCAB)
    assert chisquare(seen[:4], 6_000 * P[:4]).pvalue < 1e-6


def test_the_oracle_comparison_catches_siblings_taken_as_independent(monkeypatch):
    monkeypatch.setattr(tree_module._Step, "_reject", lambda *_: None)
    torch.manual_seed(5)
    with pytest.raises(AssertionError):
        assert_as_oracle(TreeCase(PAIR, np.array([P] * 3), [3, 1], np.array([Q, Q])), "dense")


def test_the_first_of_two_certain_siblings_with_one_token_counts():
    tree = topology([(0,), (0, 0), (1,), (1, 0)])
    sure = np.eye(VOCAB)
    case = TreeCase(tree, sure[[2, 3, 3, 4, 4]], [2, 3, 2, 4], sure[[2, 3, 2, 4]])
    for greedy in ([True], [False]):
        verdict = verify([case], "none", greedy)
        assert outputs(verdict) == [[2, 3, 3]]
        assert verdict.nodes.tolist() == [1]


def test_nothing_is_below_a_missing_draft():
    """The missing sibling is passed over, the next one's turn comes, and the missing one's child is not there."""
    tree = topology([(0,), (0, 0), (1,)])
    sure = np.eye(VOCAB)
    case = TreeCase(tree, sure[[2, 0, 0, 1]], [-1, 2, 2], sure[[0, 2, 2]])
    for greedy in ([True], [False]):
        verdict = verify([case], "none", greedy)
        assert outputs(verdict) == [[2, 1]]
        assert verdict.nodes.tolist() == [2]
        assert verdict.rows.tolist() == [[0, 3, 3]]


def test_missing_siblings_are_no_rejections():
    """All are missing: the token comes from p whole, whatever q says. 1,000 samples, false alarm 1e-7, seed 6."""
    torch.manual_seed(6)
    case = TreeCase(PAIR, np.array([P] * 3), [-1, -1], np.array([Q, Q]))
    observed = outputs(verify([case] * SAMPLES, "dense"))
    assert p_value(observed, {(i,): x for i, x in enumerate(P) if x}) > FALSE_ALARM


def test_equal_p_and_q_keep_the_first_sibling():
    case = TreeCase(PAIR, np.array([P] * 3), [1, 0], np.array([P, P]))
    assert set(verify([case] * 500, "dense").nodes.tolist()) == {0}


def test_disjoint_support_keeps_nothing_and_recovers_from_p():
    half = np.array([0.5, 0.5, 0, 0, 0])
    case = TreeCase(PAIR, np.array([half] * 3), [3, 4], np.array([[0, 0, 0, 0.5, 0.5], [0, 0, 0, 0.5, 0.5]]))
    verdict = verify([case] * 500, "dense")
    assert set(verdict.nodes.tolist()) == {-1}
    assert {tuple(tokens) for tokens in outputs(verdict)} == {(0,), (1,)}


def test_a_sibling_that_covers_the_rest_of_p_is_always_kept():
    """p = (.5, .5), both tokens drafted for certain beside a drawn one: one of the three is kept."""
    tree = topology([(0,), (1,), (2,)])
    half = np.array([0.5, 0.5, 0, 0, 0])
    case = TreeCase(tree, np.array([half] * 4), [0, 1, 4], np.array([*np.eye(VOCAB)[:2], np.full(VOCAB, 0.2)]))
    nodes = verify([case] * 500, "dense").nodes
    assert set(nodes.tolist()) == {0, 1}


class _SmallestNoise(Noise):
    """Accepts whatever may be accepted at all."""

    def uniform(self, rows, trial=0):
        return torch.zeros(len(rows), dtype=torch.float64)


def test_impossible_tokens_are_not_kept_even_with_the_smallest_noise():
    """First sibling: p = 0 < q. Second: q = 0, whatever p is; it can't have been drawn from that."""
    rows = TreeRows.of([PAIR, PAIR], CPU)
    logits = torch.tensor(np.array([P] * 6), dtype=torch.float32).log()
    drafts = torch.tensor([4, 0, 4, 4])
    probs = torch.tensor([[0, 0, 0, 0.5, 0.5]] * 2 + [[0, 0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5, 0]])
    verdict = verify_tree(logits, drafts, probs, rows, torch.zeros(2, dtype=torch.bool), _SmallestNoise(VOCAB, CPU))
    assert verdict.nodes.tolist() == [-1, -1]


def test_the_place_of_a_missing_sibling_is_passed_over():
    """Beside a drawn sibling: the next one's trial is its own, with what p is at the start."""
    tree = topology([(0,), (1,), (2,)])
    case = TreeCase(tree, np.array([P] * 4), [-1, 0, 1], np.array([Q, P, P]))
    assert set(verify([case] * 300, "dense").nodes.tolist()) == {1}


def test_a_step_without_requests_or_drafts():
    rows = TreeRows.of([], CPU)
    nothing = torch.zeros(0, dtype=torch.int64)
    verdict = verify_tree(torch.zeros(0, VOCAB), nothing, None, rows, nothing.bool(), Noise(VOCAB, CPU))
    assert verdict.token_ids.shape == verdict.rows.shape == (0, 1)
    case = TreeCase(chain(0), np.eye(VOCAB)[[3]], [], UNDRAFTED)
    assert outputs(verify([case, case], "dense")) == [[3], [3]]


def test_rows_that_nobody_comes_to_are_not_looked_at():
    """Poisoned logits below a sibling that is not taken, sampled."""
    tree = topology([(0,), (0, 0), (1,)])
    rows = TreeRows.of([tree], CPU)
    logits = torch.tensor(np.eye(VOCAB)[[2, 0, 0, 1]], dtype=torch.float32).log()
    logits[1:3] = float("nan")
    seen = []

    class Watched(Noise):
        def exponential(self, rows):
            seen.extend(rows.tolist())
            return super().exponential(rows)

    drafts = torch.tensor([1, 1, 2])
    verdict = verify_tree(logits, drafts, None, rows, torch.tensor([False]), Watched(VOCAB, CPU))
    assert outputs(verdict) == [[2, 1]]
    assert seen == [0, 3]


def test_inputs_are_left_as_they_were():
    generator = torch.Generator().manual_seed(7)
    rows = TreeRows.of([PAIR, chain(2)], CPU)
    logits = torch.randn(len(rows.request), VOCAB, generator=generator)
    probs = torch.rand(4, VOCAB, generator=generator).softmax(-1)
    drafts = torch.tensor([0, -1, 2, 3])
    copies = logits.clone(), probs.clone(), drafts.clone()
    verify_tree(logits, drafts, probs, rows, torch.tensor([False, True]), Noise(VOCAB, CPU))
    assert all(torch.equal(a, b) for a, b in zip((logits, probs, drafts), copies, strict=True))
