"""What the next drafts of a proposer bring, from what became of those before."""

from typing import NamedTuple

import numpy as np
import pytest

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.scheduling.draft_length.control import Drafting
from vllm_spec_plugin.scheduling.draft_length.proposer_model import ProposerModel
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows


class Expected(NamedTuple):
    """Of n requests, as `ProposerModel.expect` writes it."""

    draft_prob: Floats
    gains: Floats
    draft_tokens: Floats


class Requests:
    """A model that is told of one request at a time, by its name; half-life 64 tokens."""

    def __init__(self, num_positions: int, *, is_tree: bool = False) -> None:
        self.rows = RequestRows()
        self.model = ProposerModel(num_positions, 64, self.rows, is_tree=is_tree)

    def learn(
        self, request_id: str, asked: int, drafted: int, accepted: int, nodes: int = 0, num_tokens: int = 0
    ) -> None:
        """Learns one step."""
        step = (np.array([value]) for value in (asked, drafted, accepted, nodes, num_tokens))
        self.model.learn(self.rows.add([request_id]), *step)

    def expect(self, *request_ids: str) -> Expected:
        """What their next drafts bring."""
        shape = len(request_ids), self.model.num_positions
        expected = Expected(np.empty(shape[0]), np.empty(shape), np.empty(shape))
        self.model.expect(self.rows.add(request_ids), *expected)
        return expected


def test_a_chain_s_gains_follow_its_acceptance() -> None:
    """40 drafts of 4 tokens: all accepted, or none."""
    chain = Requests(4)
    for _ in range(40):
        chain.learn("good", 4, 4, 4)
        chain.learn("bad", 4, 4, 0)
    good, bad, new = chain.expect("good", "bad", "new").gains
    assert good[3] > 0.6 > 0.2 > bad[0]
    assert bad[0] < new[0] < good[0]


def test_drafts_that_do_not_come_are_expected_not_to() -> None:
    """40 times asked for 2 tokens: none, or one that is accepted."""
    chain = Requests(2)
    for _ in range(40):
        chain.learn("silent", 2, 0, 0)
        chain.learn("short", 2, 1, 1)
    expected = chain.expect("silent", "short")
    assert expected.draft_tokens[0, 0] == expected.draft_prob[0] < 0.2
    assert expected.gains[0, 0] < 0.2
    assert expected.draft_tokens[1, 0] > 0.8 > 0.4 > expected.draft_tokens[1, 1]


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_proposer_that_was_not_asked_is_thought_of_as_before(is_tree: bool) -> None:
    """But what was known of the request fades, which is nothing here."""
    requests = Requests(3, is_tree=is_tree)
    before = requests.expect("a")
    requests.learn("a", 0, 0, 0, num_tokens=3)
    for seen, seen_before in zip(requests.expect("a"), before, strict=True):
        assert seen.tolist() == seen_before.tolist()


def test_a_tree_s_gain_is_its_mean_number_of_accepted_nodes() -> None:
    """200 trees of 4 nodes: the first is accepted always, the second every other time, the third one time in four.

    The fourth never is. 0.15 is what shrinking towards the average and the node before leaves.
    """
    tree = Requests(4, is_tree=True)
    for step in range(200):
        nodes = 0b001 | (step % 2 == 0) << 1 | (step % 4 == 0) << 2
        tree.learn("a", 4, 4, nodes.bit_count(), nodes)
    expected = tree.expect("a")
    assert expected.gains[0] == pytest.approx([1.0, 0.5, 0.25, 0.0], abs=0.15)
    assert expected.gains.sum() == pytest.approx(1.75, abs=0.15)
    assert expected.draft_prob[0] > 0.98
    assert tree.model.acceptance == pytest.approx([1.0, 0.5, 0.25, 0.0], abs=0.2)


def test_what_was_seen_fades_and_is_forgotten() -> None:
    """After 20 half-lives a request is the average; one that is forgotten is at once."""
    tree = Requests(5, is_tree=True)
    for _ in range(20):
        tree.learn("a", 5, 5, 4, 0b1111)
        tree.learn("b", 5, 5, 0)
    seen, average = tree.expect("a", "new").gains.sum(axis=1)
    assert seen > average + 0.8
    tree.learn("a", 0, 0, 0, num_tokens=20 * 64)
    assert tree.expect("a").gains[0] == pytest.approx(tree.expect("new").gains[0], abs=1e-3)
    tree.rows.forget("b")
    assert tree.expect("b").gains.tolist() == tree.expect("new").gains.tolist()


def test_drafting_costs_a_tenth_of_a_step_per_pass_until_it_is_measured() -> None:
    """Passes are as many as the longest draft, but no more than positions."""
    model = Requests(4).model
    model.probed(0.02)
    assert model.draft_cost.coefficients[1] == pytest.approx(0.002)
    for _ in range(100):
        model.measured(Drafting(9, 4, 0, 4 * 0.01))
    assert model.draft_cost.coefficients @ [1, 4, 4] == pytest.approx(0.04, rel=0.01)
    before = model.draft_cost.coefficients.tolist()
    model.probed(0.02)
    model.measured(Drafting(0, 0, 0, 0.5))
    assert model.draft_cost.coefficients.tolist() == before
