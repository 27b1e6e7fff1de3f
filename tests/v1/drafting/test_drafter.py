"""Tests the data of a draft that is kept between proposing and verifying it."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.messages import StepPlan
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
from vllm_spec_plugin.proposers.suffix.store import TextStore
from vllm_spec_plugin.v1.drafting import drafter as module
from vllm_spec_plugin.v1.drafting.drafter import Drafter
from vllm_spec_plugin.verification.draft_probs import SparseProbs

CPU = torch.device("cpu")
CONFIG = {"proposer": {"method": "medusa", "model": "heads"}}


def drawn(token):
    return Draft([token], SparseProbs(torch.tensor([[token, 0]]), torch.tensor([[0.75, 0.25]])))


class Scripted:
    """Drafts the token it was told for each request, drawn from a distribution."""

    def __init__(self):
        self.forgotten = []

    def propose(self, requests):
        return [drawn(int(request.token_ids[-1])) for request in requests]

    def forget(self, request_id):
        self.forgotten.append(request_id)


@pytest.fixture
def proposer():
    return Scripted()


@pytest.fixture
def drafter(monkeypatch, proposer):
    return made(monkeypatch, CONFIG, proposer)


def made(monkeypatch, config, *proposers):
    """A drafter with other proposers than its configuration names."""
    waiting = list(proposers)
    monkeypatch.setattr(module, "create_proposer", lambda config, num_tokens, vocab_size, engine: waiting.pop(0))
    model = SimpleNamespace(get_vocab_size=lambda: 10, get_hidden_size=lambda: 4, dtype=torch.float32)
    vllm_config: Any = SimpleNamespace(
        additional_config={KEY: {"config": config, "source": "spec.yaml"}},
        model_config=model,
        speculative_config=None,
        device_config=SimpleNamespace(device=CPU),
    )
    return Drafter(vllm_config)


def view(request_id, token):
    return RequestView(request_id, np.array([token], np.int32), 1, np.zeros(1), depth=1, draft_plan=((0, 1),))


def test_q_of_a_request_that_is_not_scheduled_for_a_step_is_there_when_it_is(drafter):
    drafter.draft([view("a", 3), view("b", 4)])
    drafter.pending.take_probs(["b"], [[4]], CPU)
    drafter.draft([view("b", 5)])
    q = drafter.pending.take_probs(["a", "b"], [[3], [5]], CPU)
    assert q.token_ids[:, 0].tolist() == [3, 5]
    assert q.probs[:, 0].tolist() == [0.75, 0.75]


def test_drafts_go_with_a_request_that_ended_or_was_preempted(drafter, proposer):
    """The id of one that ended may be given to the next one in the same step."""
    drafter.scopes = {"a": "one", "b": "two"}
    drafter.draft([view("a", 3), view("b", 4)])
    step = SimpleNamespace(finished_req_ids={"a"}, preempted_req_ids={"b"})
    drafter.note_step(None, step, StepPlan(scopes={"a": "new"}))
    assert drafter.scopes == {"a": "new", "b": "two"}
    assert proposer.forgotten == ["a", "b"]
    assert drafter.pending.take_probs(["a", "b"], [[3], [4]], CPU) is None


class InOrder(set):
    """A set with the order of another process: hashes of texts differ from process to process."""

    def __init__(self, order):
        super().__init__(order)
        self._order = order

    def __iter__(self):
        return iter(self._order)


def test_texts_of_requests_that_end_together_give_the_same_drafts_on_each_rank(monkeypatch):
    """The store drafts from the newest of equally long matches."""
    texts = {"method": "suffix", "shared": True, "shared_scope": "global"}
    config = {"proposer": {"method": "cascade", "proposers": [texts, CONFIG["proposer"]]}}
    drafts = []
    for order in permutations("ab"):
        store = TextStore(4096, 10)
        drafter = made(monkeypatch, config, SuffixProposer(1, 0.0, 10, store), Scripted())
        texts = {"a": [1, 2, 3, 4], "b": [1, 2, 3, 5]}
        drafter.draft([long_view(name, text) for name, text in texts.items()])
        drafter.note_step(None, SimpleNamespace(finished_req_ids=InOrder(order), preempted_req_ids=None), StepPlan())
        drafts += drafter.draft([long_view("c", [1, 2, 3])])
    assert drafts[0].token_ids == drafts[1].token_ids != []


def long_view(request_id, text):
    return RequestView(
        request_id, np.array(text, np.int32), 1, np.zeros(1), True, depth=1, scope="global", draft_plan=((0, 1),)
    )


def test_each_proposer_of_a_cascade_is_counted_and_told_by_itself(monkeypatch):
    """The first has no guess for b, and fails in the next step: the second one drafts."""
    heads = {"method": "medusa", "model": "heads"}
    first: Any = Scripted()
    second = Scripted()
    first.propose = lambda requests: [drawn(3) if request.request_id == "a" else NO_DRAFT for request in requests]
    config = {"proposer": {"method": "cascade", "proposers": [{"method": "ngram"}, heads]}}
    cascade = made(monkeypatch, config, first, second)
    draft_plan = ((0, 1), (1, 1))
    a, b = (RequestView(name, np.array([4], np.int32), 1, np.zeros(1), depth=1, draft_plan=draft_plan) for name in "ab")
    assert [draft.token_ids for draft in cascade.draft([a, b])] == [[3], [4]]
    assert cascade.sources == {"a": 0, "b": 1}
    counted = cascade.take_counters()
    assert counted.of("medusa").proposer_seconds > 0
    assert [counted.of(method).draft_tokens for method in ("ngram", "medusa", "cascade")] == [1, 1, 0]
    first.propose = None
    assert [draft.token_ids for draft in cascade.draft([a, b])] == [[4], [4]]
    assert cascade.take_counters().of("ngram").proposer_errors == {"raised": 1}
    assert first.forgotten == ["a", "b"]
    cascade.forget("a")
    assert second.forgotten == ["a"]
