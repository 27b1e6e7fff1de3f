"""Tests the views of the batch that proposers get."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.v1.drafting.request_views import request_views

MAX_MODEL_LEN = 40
CHAIN = {"proposer": {"method": "medusa", "model": "heads"}}
TREE = {
    "proposer": {"method": "medusa", "model": "heads", "tree": "auto"},
    "draft_length": {"policy": "fixed", "tokens": 12},
}


def request(length, num_output=1, seed=None, **params):
    defaults = {"temperature": 1.0, "max_tokens": None, "structured_outputs": None, "extra_args": None}
    return SimpleNamespace(
        length=length,
        prompt_token_ids=[1] * (length - num_output),
        sampling_params=SimpleNamespace(**defaults | params),
        generator=None if seed is None else torch.Generator().manual_seed(seed),
    )


def views(requests, config=CHAIN, siblings=1, new=None, hidden=None, lengths=None, scopes=None, plan=None):
    names = [f"r{i}" for i in range(len(requests))]
    batch = SimpleNamespace(
        req_ids=names,
        req_id_to_index={name: row for row, name in enumerate(names)},
        num_tokens_no_spec=np.array([r.length for r in requests]),
        token_ids_cpu=np.arange(len(requests) * MAX_MODEL_LEN, dtype=np.int32).reshape(len(requests), -1),
    )
    runner: Any = SimpleNamespace(
        input_batch=batch, requests=dict(zip(names, requests, strict=True)), max_model_len=MAX_MODEL_LEN
    )
    parsed = parse_config(config, "spec.yaml")
    if lengths is None:
        lengths = dict.fromkeys(names, parsed.draft_length.tokens)
    plan = plan or {name: ((0, length),) for name, length in lengths.items()}
    drafter: Any = SimpleNamespace(config=parsed, engine=None, siblings=siblings, scopes=scopes or {})
    found = request_views(runner, new or [[7]] * len(requests), drafter, plan, hidden)
    return [view.row for view in found], found


def test_a_chain_goes_as_far_as_context_and_max_tokens_leave_room():
    """One more token is always sampled after the drafts."""
    requests = [request(20), request(37), request(39), request(20, num_output=3, max_tokens=6)]
    places, found = views(requests)
    assert places == [0, 1, 3]
    assert [view.num_draft_tokens for view in found] == [4, 2, 2]
    assert [view.depth for view in found] == [4, 2, 2]


def test_a_tree_may_have_more_tokens_than_may_follow_each_other():
    """max_tokens limits how deep it goes, the context how many tokens the scheduler takes."""
    requests = [
        request(10),
        request(33),
        request(20, num_output=3, max_tokens=6),
        request(20, num_output=3, max_tokens=4),
    ]
    places, found = views(requests, TREE)
    assert places == [0, 1, 2]
    assert [view.num_draft_tokens for view in found] == [12, 6, 12]
    assert [view.depth for view in found] == [12, 6, 2]


def test_drafts_of_greedy_requests_and_with_a_grammar_are_certain():
    """Otherwise a grammar would drop tokens of sampled drafts by their value, which q does not know."""
    requests = [request(10), request(10, temperature=0.0), request(10, structured_outputs=object())]
    assert [view.point_mass for view in views(requests)[1]] == [False, True, True]


@pytest.mark.parametrize(("lenience", "scope"), [(1.0, "s"), (0.9, None)])
def test_what_others_said_must_not_show_in_seeded_output(lenience, scope):
    config = {"proposer": {"method": "ngram"}, "verification": {"lenience": lenience}}
    [plain, seeded] = views([request(10), request(10, seed=5)], config, scopes={"r0": "s", "r1": "s"})[1]
    assert plain.scope == "s"
    assert seeded.scope == scope
