"""Drafts of a batch are those of each request alone, and the model is fed each token once, in its place."""

from random import Random

import pytest
import torch

from tests.v1.proposers.draft_model.pool import Request
from tests.v1.proposers.draft_model.table_model import BLOCK_SIZE, VOCAB_SIZE, Scene, oracle
from vllm_spec_plugin.proposers.guard import check_draft


def text(seed, length):
    return Random(seed).choices(range(VOCAB_SIZE), k=length)


def assert_drafts(scene, requests, drafts):
    """As the oracle's, and sound."""
    for row, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        tokens, q = oracle(scene.engine, request, scene.samples)
        assert draft.token_ids == tokens
        assert (draft.probs is None) == (q is None)
        if q is not None:
            torch.testing.assert_close(draft.probs, q, atol=1e-6, rtol=1e-5)
        check_draft(draft, request.view(row, [BLOCK_SIZE]), VOCAB_SIZE)


def test_there_are_as_many_passes_as_the_longest_draft_has_tokens():
    requests = [Request(f"r{i}", text(i, 4), k) for i, k in enumerate([3, 5, 1, 3])]
    scene = Scene()
    scene.propose(requests)
    # One pass over all texts, then those with K above 1, 2, 3, 4.
    assert scene.engine.passes == [16, 3, 3, 1, 1]


def test_a_long_text_is_caught_up_over_several_steps_while_others_draft():
    scene = Scene(catch_up_tokens=10)
    long, short = Request("l", text(1, 25)), Request("s", text(2, 4))
    for computed, drafted in [(6, 0), (9, 0), (9, 0), (1, 4)]:
        drafts = scene.propose([long, short])
        assert scene.engine.num_computed == {"s": 4 if computed == 6 else 1, "l": computed}
        assert [len(draft.token_ids) for draft in drafts] == [drafted, 4]
    assert_drafts(scene, [long, short], drafts)


def test_what_is_forgotten_is_computed_again_from_whole_blocks_and_after_a_reset_from_none():
    scene, request = Scene(), Request("a", text(1, 11))
    scene.propose([request])
    scene.proposer.forget("a")
    scene.proposer.forget("nobody")
    assert_drafts(scene, [request], scene.propose([request]))
    assert scene.engine.num_computed == {"a": 3}
    scene.proposer.reset()
    scene.propose([request])
    assert scene.engine.num_computed == {"a": 11}, "blocks are forgotten too"


@pytest.mark.parametrize("samples", [True, False])
def test_texts_grow_by_accepted_drafts_and_the_model_is_fed_what_is_new(samples):
    """40 steps: the batch changes in order and size, K in each step, and drafts are accepted in part.

    Greedy, sampled, and a sampled one that asks for point masses.
    """
    chance, scene = Random(3), Scene(samples)
    requests = [Request(f"r{i}", text(i, 2 + 3 * i), temperature=i % 3 / 2, bias=i) for i in range(6)]
    requests[5].point_mass = True
    missing = {request.request_id: len(request.text) for request in requests}
    caught_up = set()
    for _ in range(40):
        chosen = chance.sample(requests, chance.randint(1, 6))
        for request in chosen:
            request.k = chance.choice([0, 1, 2, 5])
        drafts = scene.propose(chosen)
        assert_drafts(scene, chosen, drafts)
        for request, draft in zip(chosen, drafts, strict=True):
            request_id, num_drafts = request.request_id, len(draft.token_ids)
            if request.k:
                # Less where the other token happens to be what was fed.
                assert 1 <= scene.engine.num_computed[request_id] <= missing[request_id]
                caught_up.add(missing[request_id])
                missing[request_id] = 0
            num_accepted = chance.randint(0, num_drafts)
            request.text += [*draft.token_ids[:num_accepted], chance.randrange(VOCAB_SIZE)]
            # The last draft was not fed.
            missing[request_id] += 2 if num_drafts and num_accepted == num_drafts else 1
    assert {1, 2, 3} <= caught_up


METHODS = [("start", 0), ("constrain", 1), ("step", 0), ("step", 2)]


@pytest.mark.parametrize("broken", METHODS, ids=str)
def test_nothing_counts_as_computed_in_a_step_that_raises(broken):
    scene = Scene()
    old, new, prompt = Request("o", text(1, 9)), Request("n", text(2, 9)), Request("p", text(3, 9), 0, num_computed=0)
    scene.propose([old])
    old.text += [1, 2]
    scene.engine.broken = broken
    with pytest.raises(RuntimeError, match="is broken"):
        scene.propose([old, new, prompt])
    assert [scene.watermark(request) for request in (old, new, prompt)] == [9, 0, 0]
    # As the guard does, which catches it.
    for request in (old, new, prompt):
        scene.proposer.forget(request.request_id)
    scene.engine.broken = None
    assert_drafts(scene, [old, new, prompt], scene.propose([old, new, prompt]))
    assert scene.engine.num_computed == {"o": 3, "n": 9, "p": 9}
