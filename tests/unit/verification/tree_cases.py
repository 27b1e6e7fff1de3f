"""Random steps over trees, from hypothesis, with the corners that matter."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from tests.unit.verification.cases import VOCAB, as_probs, distributions
from vllm_spec_plugin.verification.noise import Noise, position_keys
from vllm_spec_plugin.verification.topology import Topology, topology
from vllm_spec_plugin.verification.tree import verify_tree
from vllm_spec_plugin.verification.tree_rows import TreeRows

CPU = torch.device("cpu")


@dataclass
class TreeCase:
    """One request: its tree of N nodes, N + 1 rows of p, N drafts, N rows of q."""

    tree: Topology
    p: np.ndarray
    tokens: list[int]
    q: np.ndarray


@st.composite
def topologies(draw, max_nodes=6):
    """Empty trees, chains, bushes; sometimes with a rank left out."""
    paths: list[tuple[int, ...]] = [()]
    for _ in range(draw(st.integers(0, max_nodes))):
        parent = draw(st.sampled_from(paths))
        taken = [path[-1] for path in paths if path[:-1] == parent and path]
        paths.append((*parent, max(taken, default=-1) + draw(st.sampled_from([1, 1, 1, 2]))))
    return topology(paths[1:])


@st.composite
def tree_cases(draw, trees=None, certain=False, missing=False):
    """One request; drafted tokens have q > 0, as drawn ones do. `missing`: some were not drafted."""
    tree = draw(trees or topologies())
    p = np.stack([draw(distributions) for _ in range(tree.num_nodes + 1)])
    q = np.zeros((tree.num_nodes, VOCAB))
    tokens = []
    for node in range(tree.num_nodes):
        kind = draw(st.sampled_from(["any", "p", "as before", "certain"]))
        q[node] = draw(distributions)
        if kind == "p":
            q[node] = p[tree.parents[node] + 1]
        if kind == "as before" and node and tree.parents[node] == tree.parents[node - 1]:
            q[node] = q[node - 1]
        tokens.append(draw(st.sampled_from(np.flatnonzero(q[node]).tolist())))
        if certain or kind == "certain":
            q[node] = np.eye(VOCAB)[tokens[node]]
    if missing:
        tokens = [-1 if draw(st.integers(0, 5)) == 0 else token for token in tokens]
    return TreeCase(tree, p, tokens, q)


def batches(**kinds):
    """Up to five requests in a step."""
    return st.lists(tree_cases(**kinds), min_size=1, max_size=5)


def seeded_noise(rows, seeds, positions=0):
    """The step's noise if request i has seed `seeds[i]`, and none if that is negative."""
    seeds = torch.as_tensor(seeds)
    keys = position_keys(seeds[rows.request], rows.offset + positions)
    return Noise(VOCAB, CPU, keys, (seeds >= 0)[rows.request])


def verify(cases, shape, greedy=None, seeds=None):
    """The verdict on a step; `seeds` per request, negative for none."""
    rows = TreeRows.of([case.tree for case in cases], CPU)
    logits = torch.tensor(np.concatenate([case.p for case in cases]), dtype=torch.float32).log()
    tokens = torch.tensor([token for case in cases for token in case.tokens], dtype=torch.int64)
    probs = as_probs([case.q for case in cases], shape)
    is_greedy = torch.zeros(len(cases), dtype=torch.bool) if greedy is None else torch.as_tensor(greedy)
    noise = Noise(VOCAB, CPU) if seeds is None else seeded_noise(rows, seeds)
    return verify_tree(logits, tokens, probs, rows, is_greedy, noise)


def outputs(verdict):
    """Per request its output tokens."""
    return [[token for token in row if token != -1] for row in verdict.token_ids.tolist()]
