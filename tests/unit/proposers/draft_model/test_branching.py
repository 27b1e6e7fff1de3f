"""Several drafts per request at once: the tree is the one that each request's branches make, drawn one by one."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from tests.unit.proposers.draft_model.table_model import VOCAB_SIZE, Request, Scene, TableEngine, tree_oracle
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
from vllm_spec_plugin.proposers.guard import check_draft
from vllm_spec_plugin.proposers.node_order import NodeOrder
from vllm_spec_plugin.verification.topology import chain

SHAPES = [(2, 2, 1), (3, 1), (1, 1), (3,), (1, 3, 1), (2, 1, 2)]
shapes = pytest.mark.parametrize("branches", SHAPES, ids=str)


def text(seed, length):
    return Random(seed).choices(range(VOCAB_SIZE), k=length)


def batch(scene, branches, kinds=((0.0, None), (1.0, None), (0.6, None), (1.0, True))):
    """Greedy, drawn and sampled requests that ask for point masses, with all or fewer branches, deep or shallow."""
    most = len(NodeOrder.of_branches(branches).tree.chains)
    requests = []
    for i, (depth, count) in enumerate([(9, 9), (9, 9), (2, 9), (9, 1), (1, 9), (9, 2), (2, 1), (9, 0), (3, 3)]):
        temperature, point_mass = kinds[i % len(kinds)]
        request = Request(f"r{i}", text(i, 3 + 2 * i), 20, temperature, point_mass=point_mass, bias=i, depth=depth)
        request.chain_only = i == 5
        requests.append(scene.fork(request, min(count, most - 1)))
    return requests


def tree_of(draft):
    """Its shape; a step in which no request branches drafts chains."""
    return chain(len(draft.token_ids)) if draft.tree is None else draft.tree


def assert_trees(scene, requests, drafts):
    """As the oracle's, and sound."""
    for row, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        nodes = tree_oracle(scene.engine, request, scene.settings)
        assert tree_of(draft).choices == tuple(path for path, _, _ in nodes)
        assert draft.token_ids == [token for _, token, _ in nodes]
        view = request.view(row)
        drawn = scene.settings.draft_sampling == "probabilistic" and not view.point_mass
        assert (draft.probs is not None) == drawn
        if drawn:
            torch.testing.assert_close(draft.probs, torch.stack([q for _, _, q in nodes]), atol=1e-6, rtol=1e-5)
        check_draft(draft, view, VOCAB_SIZE)


@shapes
@pytest.mark.parametrize("more", [{}, {"draft_temperature": 0.4}, {"draft_sampling": "greedy"}], ids=str)
def test_trees_and_q_are_those_of_each_request_alone(branches, more):
    scene = Scene(DraftSettings(branches=branches, **more))
    requests = batch(scene, branches)
    assert_trees(scene, requests, scene.propose(requests))


def test_forks_that_are_too_short_are_not_used():
    """Of 4 places three are fed: positions 7, 8 and 9 are in two blocks."""
    scene = Scene(DraftSettings(branches=(2, 1, 1, 1)))
    requests = [scene.fork(Request(f"r{length}", text(1, length), 10), 1, size=1) for length in (7, 8)]
    assert [len(tree_of(draft).chains) for draft in scene.propose(requests)] == [1, 2]


def test_any_number_of_tokens_is_drafted_and_shallow_trees_take_fewer_passes():
    """The first nodes by probability: from the chain's first token to the whole tree, each as in the whole tree."""
    scene, drafts, num_passes = Scene(DraftSettings(branches=(2, 2, 1))), [], []
    request = scene.fork(Request("r", text(0, 5), 10, depth=9, uniforms=np.zeros(10)), 3)
    for k in range(1, 11):
        request.k = k
        drafts += scene.propose([request])
        num_passes.append(len(scene.engine.passes))
    [whole] = drafts[-1:]
    tokens = dict(zip(tree_of(whole).choices, whole.token_ids, strict=True))
    for k, draft in enumerate(drafts, 1):
        assert len(draft.token_ids) == k
        assert draft.token_ids == [tokens[path] for path in tree_of(draft).choices]
        q = [tree_of(whole).choices.index(path) for path in tree_of(draft).choices]
        assert isinstance(whole.probs, torch.Tensor)
        torch.testing.assert_close(draft.probs, whole.probs[q])
        assert sorted(tree_of(draft).numbers) == list(range(k))
    assert num_passes == [1, 2, 3] + [3] * 7
    request.k, request.blocks = 1, np.empty(0, np.int32)
    assert Scene(DraftSettings()).propose([request])[0].token_ids == drafts[0].token_ids


@shapes
def test_by_confidence_the_most_probable_nodes_of_all_up_to_depth_k_are_drafted(branches):
    """The path probability of each node is the model's, after the request's pipeline; certain at any temperature."""
    settings = DraftSettings(branches=branches, draft_sampling="greedy", by_confidence=True)
    scene = Scene(settings)
    requests = batch(scene, branches)
    shapes_of = set()
    for row, (request, draft) in enumerate(zip(requests, scene.propose(requests), strict=True)):
        view = request.view(row)
        check_draft(draft, view, VOCAB_SIZE)
        assert draft.probs is None
        every = replace(request, k=99, depth=min(view.depth, view.num_draft_tokens))
        nodes = tree_oracle(scene.engine, every, settings)
        if view.chain_only or not nodes:
            nodes = tree_oracle(scene.engine, request, settings)
        tokens = {path: token for path, token, _ in nodes}
        probability: dict[tuple[int, ...], tuple[float, float]] = {}
        for path, token, q in nodes:
            # Of a sibling's q, which is what is left of the model's, the rest is that of the ones before.
            left = 1.0 - sum(probability[(*path[:-1], rank)][1] for rank in range(path[-1]))
            own = float(q[token]) * left
            probability[path] = own * probability.get(path[:-1], (1.0, 1.0))[0], own
        best = sorted(nodes, key=lambda node: -probability[node[0]][0])[: request.k]
        assert sorted(tree_of(draft).choices) == sorted(path for path, _, _ in best)
        assert draft.token_ids == [tokens[path] for path in tree_of(draft).choices]
        if not view.chain_only:
            order = [tree_of(draft).choices[node] for node in tree_of(draft).order]
            assert order == [path for path, _, _ in best]
        shapes_of.add(tree_of(draft).choices)
    assert len(shapes_of) > 1


def test_what_the_trunk_was_fed_counts_as_far_as_the_text_went_on_like_it():
    scene = Scene(DraftSettings(branches=(2, 2, 1)))
    for way, num_computed in [((0, 0, 0), 2), ((0, 0), 1), ((0, 1, 0), 3), ((0,), 1), ((1, 0), 3), ((1,), 2), ((), 1)]:
        request = scene.fork(Request(f"r{way}", text(len(way), 6), 20), 3)
        [draft] = scene.propose([request])
        accepted = [draft.token_ids[tree_of(draft).choices.index(way[: end + 1])] for end in range(len(way))]
        fed = [draft.token_ids[node] for node in tree_of(draft).chains[0][:2]]
        # A token that is not what the trunk, which was fed two, had there.
        other = next(token for token in range(VOCAB_SIZE) if token not in draft.token_ids)
        request.text += [*accepted, other]
        assert (accepted[:2] == fed) == (way[:2] == (0, 0))
        assert_trees(scene, [request], scene.propose([request]))
        assert scene.engine.num_computed[request.request_id] == num_computed


@pytest.mark.parametrize("branches", [(2, 2, 1), (3, 1)], ids=str)
def test_texts_grow_by_any_branch_and_the_model_never_sees_stale_state(branches):
    """40 steps: batch, depths and sizes of trees change, and ways of any branch are accepted in part."""
    chance, scene = Random(3), Scene(DraftSettings(branches=branches))
    requests = [Request(f"r{i}", text(i, 2 + 3 * i), 20, temperature=i % 3 / 2, bias=i) for i in range(5)]
    most = len(NodeOrder.of_branches(branches).tree.chains) - 1
    for request in requests:
        scene.fork(request, most)
    won = set()
    for _ in range(40):
        chosen = chance.sample(requests, chance.randint(1, 5))
        for request in chosen:
            request.depth = chance.choice([1, 2, 9, 9])
            request.k = chance.choice([2, 4, 20, 20])
            request.chain_only = chance.random() < 0.1
        drafts = scene.propose(chosen)
        assert_trees(scene, chosen, drafts)
        for request, draft in zip(chosen, drafts, strict=True):
            at = chance.randrange(len(tree_of(draft).chains))
            way = tree_of(draft).chains[at]
            num_accepted = chance.randint(0, len(way))
            won.add((at > 0, num_accepted))
            request.text += [draft.token_ids[node] for node in way[:num_accepted]] + [chance.randrange(VOCAB_SIZE)]
    assert {(True, len(branches)), (False, len(branches)), (True, 0)} <= won


def test_nothing_counts_as_computed_in_a_step_whose_branches_raise():
    scene = Scene(DraftSettings(branches=(2, 1)))
    request = scene.fork(Request("a", text(1, 9), 10), 1)
    scene.engine.broken = ("branch", 0)
    with pytest.raises(RuntimeError, match="is broken"):
        scene.propose([request])
    assert scene.watermark(request) == 0


def test_branches_stop_at_the_end_of_the_drafts_context():
    scene = Scene(DraftSettings(branches=(2, 1, 1, 1)), TableEngine(max_len=10))
    requests = [scene.fork(Request(f"r{length}", text(length, length), 20), 1) for length in (6, 8, 10, 11)]
    drafts = scene.propose(requests)
    assert [tree_of(draft).depth if draft.tree else 0 for draft in drafts] == [4, 3, 1, 0]


def test_siblings_are_asked_for_as_many_random_numbers_as_the_widest_place_takes():
    for branches, count in [((), 1), ((1, 1), 1), ((2, 3, 1), 3)]:
        assert Scene(DraftSettings(branches=branches)).proposer.num_siblings == count


def test_too_few_random_numbers_are_refused(monkeypatch):
    """One used twice among siblings would bias the output."""
    scene = Scene(DraftSettings(branches=(5,)))
    with pytest.raises(ValueError, match="5 random numbers"):
        scene.propose([scene.fork(Request("a", text(1, 5), 10, uniforms=np.zeros(10)), 4)])
