"""Chain verification against the oracle, in closed form, and in its corners."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.pretended_gpu import pretended, waits
from tests.unit import p_values
from tests.unit.random_cases import random_cases
from tests.v1.verification import block_oracle, tree_oracle
from tests.v1.verification.cases import VOCAB, Case, as_logits, as_probs, random_case, verify_many
from vllm_spec_plugin.v1.verification.chain import verify_chain, verify_greedy
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.verification.topology import chain

SAMPLES = 1500
# Per comparison; at most 100 cases of up to 3 requests in 8 tests keep the file's false alarms under 3e-4,
# and the seeds are fixed.
FALSE_ALARM = 1e-7
METHODS = {"token": tree_oracle.chain_distribution, "block": block_oracle.output_distribution}
methods = pytest.mark.parametrize("method", METHODS)


def greedy_output(p, drafts):
    return tree_oracle.greedy_output(chain(len(drafts)), p.astype(np.float32), drafts)[0]


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
    return p_values.chi_square(observed, wanted)


def assert_as_oracle(case, shape, device, method, seeds=None):
    outputs = verify_many(case, shape, SAMPLES, device, seeds=seeds, method=method)
    for i in range(len(case.drafts)):
        expected = METHODS[method](case.p[i], case.drafts[i], case.q[i])
        # Rounding leaves as good as nothing of what fractions leave nothing of.
        expected = {output: float(own) for output, own in expected.items() if own > 1e-12}
        assert p_value([o[i] for o in outputs], expected) > FALSE_ALARM


@methods
@pytest.mark.parametrize("kind", ["drawn", "certain", "seeded"])
@random_cases(15, 100)
def test_outputs_are_distributed_as_the_oracle_says(rng, kind, method, device):
    """1,500 samples or seeds a case, false alarm 1e-7 each."""
    torch.manual_seed(1)
    case = random_case(rng, point_mass=kind == "certain")
    shape = rng.choice(["dense", "sparse", *(["none"] if kind == "certain" else [])])
    seeds = torch.arange(SAMPLES * len(case.drafts)) * 7919 if kind == "seeded" else None
    assert_as_oracle(case, shape, device, method, seeds)


@random_cases(15, 100)
def test_lenience_is_as_the_oracle_says(rng, device):
    """1,500 samples a case, false alarm 1e-7 each."""
    torch.manual_seed(3)
    case, lenience = random_case(rng), rng.choice([0.3, 0.8])
    outputs = verify_many(case, "dense", SAMPLES, device, lenience=lenience)
    for i in range(len(case.drafts)):
        expected = tree_oracle.chain_distribution(case.p[i], case.drafts[i], case.q[i], lenience)
        assert p_value([o[i] for o in outputs], expected) > FALSE_ALARM


@random_cases(30, 300)
def test_greedy_steps_are_decided_on_the_host_from_the_most_likely_tokens(rng):
    """With places where nothing was drafted, which end their request's draft."""
    case = random_case(rng, max_requests=6)
    drafts = [[-1 if rng.random() < 0.1 else token for token in draft] for draft in case.drafts]
    rows = Rows.of(list(map(len, drafts)), torch.device("cpu"))
    most_likely = np.concatenate(case.p).astype(np.float32).argmax(-1)
    output = verify_greedy(most_likely, np.array([token for draft in drafts for token in draft], np.int64), rows)
    assert output.dtype == np.int32
    assert output.shape == (len(drafts), max(map(len, drafts)) + 1)
    for p, draft, line in zip(case.p, drafts, output.tolist(), strict=True):
        expected = greedy_output(p, draft)
        assert line == [*expected, *[-1] * (len(line) - len(expected))]


@pytest.mark.parametrize("shape", ["none", "sparse", "dense"])
@pytest.mark.parametrize("greedy", [True, False, [True, False, True, False]], ids=["greedy", "sampled", "mixed"])
@pytest.mark.parametrize(("method", "lenience"), [("token", 1.0), ("token", 0.7), ("block", 1.0)])
def test_nothing_is_read_back_from_the_device(shape, greedy, method, lenience):
    rng = np.random.default_rng(9)
    case = random_case(rng, max_requests=4)
    while len(case.drafts) < 4:
        case = random_case(rng, max_requests=4)
    with pretended() as device:
        rows = Rows.of(list(map(len, case.drafts)), device)
        logits, probs = as_logits(case.p, device), as_probs(case.q, shape, device)
        drafts = torch.tensor([token for draft in case.drafts for token in draft], dtype=torch.int64, device=device)
        wanted = greedy if isinstance(greedy, bool) else torch.tensor(greedy, device=device)
        with waits() as found:
            output = verify_chain(logits, drafts, probs, rows, wanted, Noise(VOCAB, device), lenience, method=method)
        assert found == []
        assert output.shape == (4, rows.width)


@methods
@pytest.mark.parametrize("drafts", [[1, 2, -1], [-1, 0, 1]], ids=str)
def test_a_missing_draft_token_ends_its_draft_without_a_rejection(drafts, method, device):
    """As the draft before it, after which a token of p comes. 1,500 samples, false alarm 1e-7, seed 7."""
    torch.manual_seed(7)
    rng = np.random.default_rng(3)
    p, q, count = rng.dirichlet(np.ones(VOCAB), size=4), rng.dirichlet(np.ones(VOCAB), size=3), drafts.index(-1)
    outputs = verify_many(Case([p], [drafts], [q]), "dense", SAMPLES, device, method=method)
    expected = METHODS[method](p[: count + 1], drafts[:count], q[:count])
    assert p_value([o[0] for o in outputs], expected) > FALSE_ALARM
