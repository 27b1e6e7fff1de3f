"""Random verification steps, from hypothesis, with the corners that matter."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from vllm_spec_plugin.verification.chain import verify_chain
from vllm_spec_plugin.verification.draft_probs import SparseProbs
from vllm_spec_plugin.verification.noise import Noise, position_keys
from vllm_spec_plugin.verification.rows import Rows

VOCAB = 5


@dataclass
class Case:
    """A step: per request K + 1 rows of p, K drafts, K rows of q."""

    p: list[np.ndarray]
    drafts: list[list[int]]
    q: list[np.ndarray]


def distribution(kind, weights):
    """A distribution over VOCAB tokens; kinds are the corners."""
    weights = np.array(weights, dtype=np.float64)
    if kind == "one-hot":
        return np.eye(VOCAB)[int(weights.argmax())]
    if kind == "low half":
        weights[VOCAB // 2 :] = 0
    if kind == "high half":
        weights[: VOCAB // 2] = 0
    if kind == "uniform":
        weights[:] = 1
    return weights / weights.sum()


# Drawn as one number: hypothesis takes as long for each that it draws as the scorer takes for a step.
WEIGHTS = np.random.default_rng(0).uniform(0.05, 1.0, (200, VOCAB))

distributions = st.builds(
    distribution,
    st.sampled_from(["any", "any", "one-hot", "low half", "high half", "uniform"]),
    st.sampled_from(range(len(WEIGHTS))).map(WEIGHTS.__getitem__),
)


@st.composite
def cases(draw, point_mass=False, max_requests=3):
    """A ragged batch; drafted tokens always have q > 0, as drawn ones do."""
    case = Case([], [], [])
    for _ in range(draw(st.integers(1, max_requests))):
        count = draw(st.integers(0, 3))
        p = np.stack([draw(distributions) for _ in range(count + 1)])
        q = np.stack([draw(distributions) for _ in range(count)]) if count else np.zeros((0, VOCAB))
        if count and draw(st.booleans()):
            q[0] = p[0]
        drafts = [draw(st.sampled_from(np.flatnonzero(row).tolist())) for row in q]
        if point_mass:
            q = np.eye(VOCAB)[drafts] if count else q
        case.p.append(p)
        case.drafts.append(drafts)
        case.q.append(q)
    return case


def as_probs(q, shape):
    """q of all drafts in one of the scorer's shapes."""
    dense = torch.tensor(np.concatenate(q), dtype=torch.float32).reshape(-1, VOCAB)
    if shape == "none":
        return None
    if shape == "dense":
        return dense
    order = torch.arange(VOCAB).flip(0).expand(len(dense), VOCAB)
    return SparseProbs(order.contiguous(), dense.gather(1, order))


def verify_many(case, shape, repeats, greedy=None, seeds=None, lenience=1.0):
    """Verifies `case` in `repeats` copies at once: [repeats][request] lists of output tokens."""
    counts = [len(d) for d in case.drafts] * repeats
    rows = Rows.of(counts, torch.device("cpu"))
    logits = torch.tensor(np.concatenate(case.p), dtype=torch.float32).log().repeat(repeats, 1)
    drafts = torch.tensor([t for drafts in case.drafts for t in drafts], dtype=torch.int64).repeat(repeats)
    probs = as_probs([np.tile(np.concatenate(case.q), (repeats, 1))], shape)
    batch = len(counts)
    is_greedy = torch.full((batch,), bool(greedy)) if not isinstance(greedy, torch.Tensor) else greedy
    noise = Noise(VOCAB, torch.device("cpu"))
    if seeds is not None:
        keys = position_keys(seeds[rows.request], rows.offset)
        noise = Noise(VOCAB, torch.device("cpu"), keys, torch.ones(len(keys), dtype=torch.bool))
    output = verify_chain(logits, drafts, probs, rows, is_greedy, noise, lenience)
    tokens = [[t for t in row if t != -1] for row in output.tolist()]
    size = len(case.drafts)
    return [tokens[i : i + size] for i in range(0, batch, size)]
