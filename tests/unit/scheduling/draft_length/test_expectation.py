"""What drafts promise, from how they fared."""

from typing import NamedTuple

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.arrays import Floats
from vllm_spec_plugin.scheduling.draft_length.expectation import ChainExpectation, TreeExpectation
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows


class Promises(NamedTuple):
    there: Floats
    gains: Floats
    delivered: Floats


class Told:
    """An expectation that is told of one request at a time, by its name."""

    def __init__(self, kind, *sizes):
        self.requests = RequestRows()
        self.expectation = kind(*sizes, self.requests)

    def verified(self, request_id, asked, drafted, accepted, num_tokens=0):
        rows = self.requests.add([request_id])
        self.expectation.learn(rows, *(np.array([count]) for count in (asked, drafted, accepted, num_tokens)))

    def promises(self, *request_ids):
        num_requests, num_places = len(request_ids), self.expectation.num_places
        promised = Promises(*(np.empty(shape) for shape in (num_requests, *[(num_requests, num_places)] * 2)))
        self.expectation.promise(self.requests.find(request_ids), *promised)
        return promised


def test_a_chain_s_gains_fall_and_follow_its_acceptance():
    chain = Told(ChainExpectation, 4, 64)
    for _ in range(40):
        chain.verified("good", 4, 4, 4)
        chain.verified("bad", 4, 4, 0)
    promised = chain.promises("good", "bad", "new")
    gains = promised.gains
    assert gains.shape == promised.delivered.shape == (3, 4)
    assert (np.diff(gains, axis=1) <= 0).all()
    assert gains[0, 3] > 0.6 > 0.2 > gains[1, 0]
    assert gains[1, 0] < gains[2, 0] < gains[0, 0]


def test_drafts_that_do_not_come_are_expected_not_to():
    chain = Told(ChainExpectation, 2, 64)
    for _ in range(40):
        chain.verified("silent", 2, 0, 0)
        chain.verified("short", 2, 1, 1)
    promised = chain.promises("silent", "short")
    assert promised.delivered[0, 0] == promised.there[0] < 0.2
    assert promised.delivered[1, 0] > 0.8 > 0.3 > promised.delivered[1, 1]
    assert promised.gains[0, 0] < 0.2


def test_a_proposer_that_was_not_asked_is_thought_of_as_before():
    chain, tree = Told(ChainExpectation, 2, 64), Told(TreeExpectation, 5, 4, 64)
    for told in (chain, tree):
        before = told.promises("a")
        told.verified("a", 0, 0, 0, 3)
        after = told.promises("a")
        assert after.gains == pytest.approx(before.gains)
        assert after.there == pytest.approx(before.there)


def test_a_tree_s_gain_is_its_mean_number_of_accepted_tokens():
    tree = Told(TreeExpectation, 5, 4, 1e9)
    before = tree.promises("a").gains[0, 0]
    assert 1 < before < 3
    for accepted in [3, 2] * 50:
        tree.verified("a", 5, 5, accepted)
        tree.verified("b", 5, 5, 0)
    promised = tree.promises("a", "b", "new")
    gains = promised.gains
    assert gains[0, 0] == pytest.approx(2.5, abs=0.1)
    assert gains[1, 0] == pytest.approx(0.0, abs=0.1)
    assert gains[1, 0] < gains[2, 0] < gains[0, 0]
    assert promised.delivered.tolist() == [[5.0]] * 3


def test_trees_that_do_not_come_are_expected_not_to():
    tree = Told(TreeExpectation, 5, 4, 1e9)
    for _ in range(40):
        tree.verified("silent", 5, 0, 0)
        tree.verified("a", 5, 5, 2)
    promised = tree.promises("silent", "a")
    assert promised.there[0] < 0.1 < 0.9 < promised.there[1]
    assert promised.delivered[:, 0] == pytest.approx(5 * promised.there)
    assert promised.gains[0, 0] < 0.3
    assert promised.gains[1, 0] == pytest.approx(2, abs=0.2)


def test_what_was_seen_of_a_tree_fades_and_is_forgotten():
    tree = Told(TreeExpectation, 5, 4, 64)
    for _ in range(20):
        tree.verified("a", 5, 5, 4)
        tree.verified("b", 5, 5, 0)
    [[seen], [average]] = tree.promises("a", "new").gains
    tree.verified("a", 0, 0, 0, 640)
    assert tree.promises("a").gains[0, 0] == pytest.approx(average, abs=0.05)
    assert seen > average + 1
    tree.verified("a", 5, 5, 4)
    tree.requests.forget("a")
    [[again], [average]] = tree.promises("a", "new").gains
    assert again == average
