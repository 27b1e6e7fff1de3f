"""Medusa drafts are what a plain computation of heads, pipelines and draws gives, request by request."""

import numpy as np
import pytest
import torch

from tests.unit.proposers.medusa.folders import HIDDEN, VOCABULARY, plain_logits, random_state, write
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.guard import check_draft
from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads
from vllm_spec_plugin.v1.proposers.medusa import MedusaProposer
from vllm_spec_plugin.verification.topology import by_priority, chain, topology

STATE = random_state()
TREES = {
    "chain": chain(3),
    "short chain": chain(2),
    "tree": topology([[0], [1], [3], [0, 0], [0, 2], [1, 0], [0, 0, 0], [0, 0, 4]]),
    "wide": topology([[0], [1], [2], [3], [4]]),
    "deep first": by_priority([[0], [0, 0], [0, 0, 0], [1], [0, 1], [1, 0], [2]]),
}


trees = pytest.mark.parametrize("name", list(TREES))


class Engine:
    """A sampling pipeline by row: one token favoured, a temperature."""

    def constrain(self, logits, rows):
        assert len(logits) == len(rows)
        return torch.stack([constrained(raw, row) for raw, row in zip(logits, rows.tolist(), strict=True)])


def constrained(logits, row):
    logits = logits.float().clone()
    logits[row] += 2
    return logits / (1 + row / 4)


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    config = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    name = write(folder, STATE, config)
    return load_heads(name, HIDDEN, VOCABULARY, torch.float32, "cpu", 3)


def view(row, *, tokens=64, depth=16, point_mass=False, **more):
    rng = np.random.default_rng(row)
    hidden = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(row))
    return RequestView(
        request_id=f"r{row}",
        token_ids=np.arange(4, dtype=np.int32),
        num_draft_tokens=tokens,
        uniforms=rng.random(16),
        point_mass=point_mass,
        row=row,
        **{"depth": depth, "sibling_uniforms": rng.random((depth, 5)), "hidden": hidden, **more},
    )


def expected(request, tree, *, draws):
    """Tokens and q of all nodes; a head's logits, pipeline and draws computed alone."""
    if request.chain_only:
        tree = chain(min(tree.depth, request.depth, request.num_draft_tokens))
    tree = tree.first(request.num_draft_tokens).within(request.depth)
    logits = plain_logits(STATE, request.hidden[None], 3, 1)[:, 0]
    tokens, probs = [], []
    for path in tree.choices:
        place, rank = len(path) - 1, path[-1]
        own = constrained(logits[place], request.row).double()
        left = row = own.softmax(-1)
        for nth in range(rank + 1):
            row = left / left.sum()
            if draws and not request.point_mass:
                u = request.sibling_uniforms[place, nth]
                token = int(np.searchsorted(row.cumsum(0).numpy(), u, side="right"))
            else:
                token = int(left.argmax())
            left[token] = 0
        tokens.append(token)
        probs.append(row.float())
    return tree, tokens, torch.stack(probs) if draws and not request.point_mass and probs else None


def assert_drafts(proposer_tree, requests, drafts, *, draws):
    for request, draft in zip(requests, drafts, strict=True):
        tree, tokens, probs = expected(request, proposer_tree, draws=draws)
        assert draft.tree is tree
        assert draft.token_ids == tokens
        assert (draft.probs is None) == (probs is None)
        if probs is not None:
            torch.testing.assert_close(draft.probs, probs, atol=1e-6, rtol=1e-4)
        check_draft(draft, request, VOCABULARY)


def batch():
    """Sampled and certain ones in turn, some with little room."""
    return [
        view(0),
        view(1, point_mass=True),
        view(2, tokens=3),
        view(3, depth=1),
        view(4, depth=2, point_mass=True),
        view(5, chain_only=True),
        view(6, chain_only=True, point_mass=True),
        view(7, tokens=1),
        view(8, tokens=5, depth=2),
    ]


@trees
@pytest.mark.parametrize("draws", [False, True])
def test_drafts_are_those_of_a_plain_computation(heads, name, draws):
    proposer, requests = MedusaProposer(heads, Engine(), TREES[name], draws=draws), batch()
    assert_drafts(TREES[name], requests, proposer.propose(requests), draws=draws)


def test_too_few_random_numbers_are_refused(heads):
    """One used twice among siblings would bias the output."""
    proposer = MedusaProposer(heads, Engine(), TREES["wide"], draws=True)
    with pytest.raises(ValueError, match="5 random numbers"):
        proposer.propose([view(0, sibling_uniforms=np.zeros((16, 4)))])
