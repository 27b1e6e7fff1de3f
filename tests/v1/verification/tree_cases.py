"""Random steps over trees with the corners that matter. They need torch, numpy and pytest only."""

from dataclasses import dataclass

import numpy as np
import torch

from tests.unit.verification.topologies import random_topology
from tests.v1.verification.cases import VOCAB, as_logits, as_probs, distribution, possible_token
from vllm_spec_plugin.v1.verification.noise import Noise, position_keys
from vllm_spec_plugin.v1.verification.tree import verify_tree
from vllm_spec_plugin.v1.verification.tree_rows import TreeRows
from vllm_spec_plugin.verification.topology import Topology


@dataclass
class TreeCase:
    """One request: its tree of N nodes, N + 1 rows of p, N drafts, N rows of q."""

    tree: Topology
    p: np.ndarray
    tokens: list[int]
    q: np.ndarray


def random_tree_case(rng, certain=False, missing=False):
    """One request; drafted tokens have q > 0, as drawn ones do. `missing`: some were not drafted."""
    tree = random_topology(rng)
    p = np.stack([distribution(rng) for _ in range(tree.num_nodes + 1)])
    q = np.zeros((tree.num_nodes, VOCAB))
    tokens = []
    for node in range(tree.num_nodes):
        kind = rng.choice(["any", "p", "as before", "certain"])
        q[node] = distribution(rng)
        if kind == "p":
            q[node] = p[tree.parents[node] + 1]
        if kind == "as before" and node and tree.parents[node] == tree.parents[node - 1]:
            q[node] = q[node - 1]
        tokens.append(possible_token(rng, q[node]))
        if certain or kind == "certain":
            q[node] = np.eye(VOCAB)[tokens[node]]
    if missing:
        tokens = [-1 if rng.random() < 1 / 6 else token for token in tokens]
    return TreeCase(tree, p, tokens, q)


def random_batch(rng, **kinds):
    """Up to five requests in a step."""
    return [random_tree_case(rng, **kinds) for _ in range(rng.integers(1, 6))]


def seeded_noise(rows, seeds, positions=0):
    """The step's noise if request i has seed `seeds[i]`, and none if that is negative."""
    device = rows.request.device
    seeds = torch.as_tensor(seeds).to(device)
    keys = position_keys(seeds[rows.request], rows.offset + positions)
    return Noise(VOCAB, device, keys, (seeds >= 0)[rows.request])


def verify(cases, shape, device, greedy=None, seeds=None):
    """The verdict on a step; `seeds` per request, negative for none."""
    rows = TreeRows.of([case.tree for case in cases], device)
    logits = as_logits([case.p for case in cases], device)
    tokens = torch.tensor([token for case in cases for token in case.tokens], dtype=torch.int64, device=device)
    probs = as_probs([case.q for case in cases], shape, device)
    is_greedy = torch.tensor(greedy or [False] * len(cases), device=device)
    noise = Noise(VOCAB, device) if seeds is None else seeded_noise(rows, seeds)
    return verify_tree(logits, tokens, probs, rows, is_greedy, noise)


def outputs(verdict):
    """Per request its output tokens."""
    return [[token for token in row if token != -1] for row in verdict.token_ids.tolist()]
