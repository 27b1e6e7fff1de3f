"""Chain verification against the oracle, in closed form, and in its corners."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.sizes import examples
from tests.unit.verification.cases import VOCAB, Case, cases, verify_many
from tests.unit.verification.oracle import greedy_output, output_distribution
from vllm_spec_plugin.verification.chain import verify_chain
from vllm_spec_plugin.verification.noise import Noise
from vllm_spec_plugin.verification.rows import Rows

SAMPLES = 1500
# Per comparison; at most 100 cases of up to 3 requests and 5 shapes keep the file's false alarms under 1e-4,
# and the seeds are fixed.
FALSE_ALARM = 1e-7


def p_value(outputs, expected):
    """Chi-square of observed outputs against expected probabilities; 0 if something impossible was seen."""
    seen = Counter(map(tuple, outputs))
    if set(seen) - set(expected):
        return 0.0
    total = len(outputs)
    big = [(seen[o], total * p) for o, p in expected.items() if total * p >= 5]
    rest = (total - sum(s for s, _ in big), total - sum(e for _, e in big))
    if rest[1] >= 5:
        big.append(rest)
    elif big:
        big[0] = (big[0][0] + rest[0], big[0][1] + rest[1])
    observed, wanted = np.array(big).T
    if len(big) == 1:
        return 1.0
    return chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue


def assert_as_oracle(case, shape, lenience=1.0, seeds=None):
    outputs = verify_many(case, shape, SAMPLES, seeds=seeds, lenience=lenience)
    for i in range(len(case.drafts)):
        expected = output_distribution(case.p[i], case.drafts[i], case.q[i], lenience)
        assert p_value([o[i] for o in outputs], expected) > FALSE_ALARM


relaxed = settings(
    max_examples=examples(15, 100), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@relaxed
@given(cases(), st.sampled_from(["dense", "sparse"]))
def test_outputs_are_distributed_as_the_oracle_says(case, shape):
    """1,500 samples a case, false alarm 1e-7 each."""
    torch.manual_seed(1)
    assert_as_oracle(case, shape)


@relaxed
@given(cases(point_mass=True), st.sampled_from(["none", "dense", "sparse"]))
def test_certain_drafts_are_distributed_as_the_oracle_says(case, shape):
    """1,500 samples a case, false alarm 1e-7 each."""
    torch.manual_seed(2)
    assert_as_oracle(case, shape)


@relaxed
@given(cases(), st.sampled_from([0.3, 0.8]))
def test_lenience_is_as_the_oracle_says(case, lenience):
    """1,500 samples a case, false alarm 1e-7 each."""
    torch.manual_seed(3)
    assert_as_oracle(case, "dense", lenience)


@relaxed
@given(cases(), st.sampled_from(["dense", "sparse"]))
def test_seeded_outputs_are_distributed_as_the_oracle_says(case, shape):
    """1,500 seeds a case, false alarm 1e-7 each."""
    assert_as_oracle(case, shape, seeds=torch.arange(SAMPLES * len(case.drafts)) * 7919)


@relaxed
@given(cases(point_mass=True), st.sampled_from(["none", "sparse"]))
def test_seeded_certain_drafts_are_distributed_as_the_oracle_says(case, shape):
    """1,500 seeds a case, false alarm 1e-7 each."""
    assert_as_oracle(case, shape, seeds=torch.arange(SAMPLES * len(case.drafts)) * 104729)


def test_first_token_is_distributed_as_p_when_drafts_are_drawn_from_q():
    """Closed form (appendix A.1): over x ~ q the output is p. 60,000 samples, false alarm 1e-6, seed 4."""
    torch.manual_seed(4)
    p, q = np.array([0.5, 0.3, 0.1, 0.1, 0.0]), np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    drafts = torch.multinomial(torch.tensor(q), 60_000, replacement=True)
    rows = Rows.of([1] * 60_000, torch.device("cpu"))
    logits = torch.tensor(p, dtype=torch.float32).log().expand(120_000, VOCAB)
    probs = torch.tensor(q, dtype=torch.float32).expand(60_000, VOCAB)
    output = verify_chain(
        logits, drafts, probs, rows, torch.zeros(60_000, dtype=torch.bool), Noise(VOCAB, logits.device)
    )
    seen = np.bincount(output[:, 0], minlength=VOCAB)
    assert seen[4] == 0
    assert chisquare(seen[:4], 60_000 * p[:4]).pvalue > 1e-6
    accepted = (output[:, 1] != -1).float().mean().item()
    assert accepted == pytest.approx(np.minimum(p, q).sum(), abs=0.01)  # corollary 3.6


@relaxed
@given(cases(), st.sampled_from(["dense", "sparse", "none"]))
def test_greedy_requests_output_the_argmax_chain(case, shape):
    [outputs] = verify_many(case, shape, 1, greedy=True)
    for i, output in enumerate(outputs):
        assert output == greedy_output(case.p[i].astype(np.float32), case.drafts[i])


@relaxed
@given(cases(max_requests=4))
def test_greedy_rows_stay_greedy_in_a_mixed_batch(case):
    greedy = torch.arange(len(case.drafts)) % 2 == 0
    [outputs] = verify_many(case, "dense", 1, greedy=greedy)
    for i in range(0, len(case.drafts), 2):
        assert outputs[i] == greedy_output(case.p[i].astype(np.float32), case.drafts[i])


def test_seeded_output_does_not_depend_on_certain_drafts():
    p = np.random.default_rng(5).dirichlet(np.ones(VOCAB), size=4)
    seeds = torch.arange(300)
    drafted = Case([p], [[1, 2, 0]], [np.eye(VOCAB)[[1, 2, 0]]])
    with_drafts = verify_many(drafted, "none", 300, seeds=seeds)
    without = verify_many(Case([p[:1]], [[]], [np.zeros((0, VOCAB))]), "none", 300, seeds=seeds)
    assert [o[0][0] for o in with_drafts] == [o[0][0] for o in without]
    assert any(len(o[0]) > 1 for o in with_drafts)


def test_equal_p_and_q_accept_everything():
    p = np.random.default_rng(6).dirichlet(np.ones(VOCAB), size=4)
    case = Case([p], [[int(row.argmax()) for row in p[:3]]], [p[:3]])
    assert all(len(o[0]) == 4 for o in verify_many(case, "dense", 500))


def test_disjoint_support_rejects_everything():
    p = np.tile(np.array([0.5, 0.5, 0, 0, 0]), (2, 1))
    case = Case([p], [[3]], [np.array([[0, 0, 0, 1.0, 0]])])
    for output in verify_many(case, "dense", 500):
        assert len(output[0]) == 1
        assert output[0][0] in (0, 1)


def test_a_missing_draft_token_ends_its_request_with_a_token_of_p():
    """Placeholders are no rejections: the next token comes from p whole. 1,500 samples, false alarm 1e-7, seed 7."""
    torch.manual_seed(7)
    p = np.array([0.6, 0.2, 0.1, 0.05, 0.05])
    case = Case([np.tile(p, (3, 1))], [[-1, 0]], [np.eye(VOCAB)[[0, 0]]])
    outputs = verify_many(case, "none", SAMPLES)
    assert all(len(o[0]) == 1 for o in outputs)
    assert p_value([o[0] for o in outputs], {(i,): x for i, x in enumerate(p)}) > FALSE_ALARM


def test_no_drafts_at_all_samples_from_p():
    """1,500 samples, false alarm 1e-7, seed 8."""
    torch.manual_seed(8)
    p = np.array([0.6, 0.2, 0.1, 0.1, 0.0])
    outputs = verify_many(Case([p[None]], [[]], [np.zeros((0, VOCAB))]), "none", SAMPLES)
    expected = {(i,): x for i, x in enumerate(p) if x}
    assert p_value([o[0] for o in outputs], expected) > FALSE_ALARM


@seed(9)
@relaxed
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_rows_are_laid_out_request_by_request(counts):
    rows = Rows.of(counts, torch.device("cpu"))
    expected = [(i, j) for i, k in enumerate(counts) for j in range(k + 1)]
    assert list(zip(rows.request.tolist(), rows.offset.tolist(), strict=True)) == expected
    assert rows.draft_row.tolist() == [r for r, (i, j) in enumerate(expected) if j < counts[i]]
