"""Random verification steps with the corners that matter. They need torch, numpy and pytest only."""

from dataclasses import dataclass

import numpy as np
import torch

from vllm_spec_plugin.v1.verification.chain import verify_chain
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise, position_keys
from vllm_spec_plugin.verification.draft_probs import SparseProbs

VOCAB = 5


@dataclass
class Case:
    """A step: per request K + 1 rows of p, K drafts, K rows of q."""

    p: list[np.ndarray]
    drafts: list[list[int]]
    q: list[np.ndarray]


def distribution(rng):
    """A distribution over VOCAB tokens; kinds are the corners."""
    weights = rng.uniform(0.05, 1.0, VOCAB)
    match rng.choice(["any", "any", "one-hot", "low half", "high half", "uniform"]):
        case "one-hot":
            return np.eye(VOCAB)[int(weights.argmax())]
        case "low half":
            weights[VOCAB // 2 :] = 0
        case "high half":
            weights[: VOCAB // 2] = 0
        case "uniform":
            weights[:] = 1
    return weights / weights.sum()


def possible_token(rng, probs):
    """Any token that `probs` gives probability, as likely as any other."""
    return int(rng.choice(np.flatnonzero(probs)))


def random_case(rng, point_mass=False, max_requests=3):
    """A ragged batch; drafted tokens always have q > 0, as drawn ones do."""
    case = Case([], [], [])
    for _ in range(rng.integers(1, max_requests + 1)):
        count = rng.integers(0, 4)
        p = np.stack([distribution(rng) for _ in range(count + 1)])
        q = np.stack([distribution(rng) for _ in range(count)]) if count else np.zeros((0, VOCAB))
        if count and rng.random() < 0.5:
            q[0] = p[0]
        drafts = [possible_token(rng, row) for row in q]
        if point_mass:
            q = np.eye(VOCAB)[drafts] if count else q
        case.p.append(p)
        case.drafts.append(drafts)
        case.q.append(q)
    return case


def as_logits(p, device):
    """[num_rows, VOCAB] float32 whose softmax is `p`, a list of arrays."""
    return torch.tensor(np.concatenate(p), dtype=torch.float32, device=device).log()


def as_probs(q, shape, device, vocab_size=VOCAB):
    """q of all drafts in one of the scorer's shapes."""
    dense = torch.tensor(np.concatenate([np.reshape(rows, (-1, vocab_size)) for rows in q]), dtype=torch.float32)
    dense = dense.to(device)
    if shape == "none":
        return None
    if shape == "dense":
        return dense
    order = torch.arange(vocab_size, device=device).flip(0).expand(len(dense), vocab_size)
    return SparseProbs(order.contiguous(), dense.gather(1, order))


def verify_many(case, shape, repeats, device, greedy=None, seeds=None, lenience=1.0, method="token"):
    """Verifies `case` in `repeats` copies at once, `greedy` per copy and request: [repeats][request] output tokens."""
    counts = [len(d) for d in case.drafts] * repeats
    rows = Rows.of(counts, device)
    logits = as_logits(case.p, device).repeat(repeats, 1)
    drafts = torch.tensor([t for drafts in case.drafts for t in drafts], dtype=torch.int64, device=device)
    probs = as_probs([np.tile(np.concatenate(case.q), (repeats, 1))], shape, device)
    is_greedy = torch.tensor(greedy or [False] * len(counts), device=device)
    noise = Noise(VOCAB, device)
    if seeds is not None:
        keys = position_keys(seeds.to(device)[rows.request], rows.offset)
        noise = Noise(VOCAB, device, keys, torch.ones(len(keys), dtype=torch.bool, device=device))
    output = verify_chain(logits, drafts.repeat(repeats), probs, rows, is_greedy, noise, lenience, method=method)
    tokens = [[t for t in row if t != -1] for row in output.tolist()]
    size = len(case.drafts)
    return [tokens[i : i + size] for i in range(0, len(tokens), size)]
