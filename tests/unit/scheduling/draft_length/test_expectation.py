"""What drafts promise, from how they fared."""

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.expectation import ChainExpectation, TreeExpectation


def test_a_chain_s_gains_fall_and_follow_its_acceptance():
    chain = ChainExpectation(4, 64)
    for _ in range(40):
        chain.verified("good", 4, 4, 4)
        chain.verified("bad", 4, 4, 0)
    gains, delivered = chain.promises(["good", "bad", "new"])
    assert gains.shape == delivered.shape == (3, 4)
    assert (np.diff(gains, axis=1) <= 0).all()
    assert gains[0, 3] > 0.6 > 0.2 > gains[1, 0]
    assert gains[1, 0] < gains[2, 0] < gains[0, 0]


def test_drafts_that_do_not_come_are_expected_not_to():
    chain = ChainExpectation(2, 64)
    for _ in range(40):
        chain.verified("silent", 2, 0, 0)
        chain.verified("short", 2, 1, 1)
    gains, delivered = chain.promises(["silent", "short"])
    assert delivered[0, 0] < 0.2
    assert delivered[1, 0] > 0.8 > 0.3 > delivered[1, 1]
    assert gains[0, 0] < 0.2


def test_a_tree_s_gain_is_its_mean_number_of_accepted_tokens():
    tree = TreeExpectation(5, 4, 1e9)
    before = tree.promises(["a"])[0][0, 0]
    assert 1 < before < 3
    for accepted in [3, 2] * 50:
        tree.verified("a", 5, 5, accepted)
        tree.verified("b", 5, 5, 0)
    gains, nodes = tree.promises(["a", "b", "new"])
    assert gains[0, 0] == pytest.approx(2.5, abs=0.1)
    assert gains[1, 0] == pytest.approx(0.0, abs=0.1)
    assert gains[1, 0] < gains[2, 0] < gains[0, 0]
    assert nodes.tolist() == [[5.0]] * 3


def test_what_was_seen_of_a_tree_fades_and_is_forgotten():
    tree = TreeExpectation(5, 4, 64)
    for _ in range(20):
        tree.verified("a", 5, 5, 4)
        tree.verified("b", 5, 5, 0)
    [[seen], [average]] = tree.promises(["a", "new"])[0]
    tree.advance("a", 640)
    assert tree.promises(["a"])[0][0, 0] == pytest.approx(average, abs=0.05)
    assert seen > average + 1
    tree.verified("a", 5, 5, 4)
    tree.forget("a")
    [[again], [average]] = tree.promises(["a", "new"])[0]
    assert again == average
