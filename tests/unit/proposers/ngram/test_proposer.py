from typing import Any

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.ngram import backoff, lookup, trie
from vllm_spec_plugin.proposers.ngram.frequency import FrequencyTables
from vllm_spec_plugin.proposers.ngram.lookup import LookupIndex
from vllm_spec_plugin.proposers.ngram.proposer import NgramProposer
from vllm_spec_plugin.verification.draft_probs import SparseProbs

VOCAB_SIZE = 50
VARIANTS = [("lookup", "greedy"), ("frequency", "greedy"), ("frequency", "sample")]


@pytest.fixture(params=VARIANTS, ids="-".join)
def proposer(request) -> NgramProposer:
    return make(*request.param)


def make(mode, draft_sampling, **changes) -> NgramProposer:
    options = {"min_order": 1, "max_order": 3, "window": 64, "vocab_size": VOCAB_SIZE} | changes
    return NgramProposer(mode, draft_sampling=draft_sampling, **options)


def view(request_id: str, text, num_draft_tokens: int = 4) -> RequestView:
    # The same randomness for the same text, as a runner's keyed uniforms.
    uniforms = np.random.default_rng(len(text)).random(num_draft_tokens)
    return RequestView(request_id, np.array(text, np.int32), num_draft_tokens, uniforms)


def same(one: Draft, other: Draft) -> bool:
    if one.token_ids != other.token_ids or (one.probs is None) != (other.probs is None):
        return False
    if one.probs is None:
        return True
    assert isinstance(one.probs, SparseProbs)
    assert isinstance(other.probs, SparseProbs)
    return one.probs.token_ids.equal(other.probs.token_ids) and one.probs.probs.equal(other.probs.probs)


def random_text(seed: int, num_tokens: int = 150, low: int = 0, high: int = 8) -> list[int]:
    return np.random.default_rng(seed).integers(low, high, num_tokens).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "suffix"}, "mode .*'suffix'"),
        ({"draft_sampling": "top_p"}, "draft_sampling .*'top_p'"),
        ({"mode": "lookup", "draft_sampling": "sample"}, "draft_sampling .*'lookup'.*'sample'"),
        ({"min_order": 0}, "min_order .*at least 1.* 0"),
        ({"min_order": 4}, "max_order .*min_order, 4.* 3"),
        ({"window": 2}, "window .*max_order, 3.* 2"),
        ({"vocab_size": 0}, "vocab_size .*at least 1.* 0"),
    ],
)
def test_impossible_arguments_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**({"mode": "frequency", "draft_sampling": "greedy"} | changes))


def test_lookup_does_not_care_about_the_window():
    assert make("lookup", "greedy", window=0).propose([view("a", [1, 2, 1])])[0].token_ids == [2, 1, 2, 1]


def test_empty_text_gives_no_draft_and_may_grow(proposer):
    assert proposer.propose([view("a", [])]) == [NO_DRAFT]
    assert proposer.propose([view("a", [4, 4])])[0].token_ids == [4, 4, 4, 4]


def test_a_forgotten_request_that_returns_gets_the_same_drafts(proposer):
    text = random_text(5)
    proposer.propose([view("a", text[:100])])
    (before,) = proposer.propose([view("a", text)])
    proposer.forget("a")
    assert proposer._states == {}
    (after,) = proposer.propose([view("a", text)])
    assert same(before, after)


@pytest.mark.parametrize(
    "other",
    [[1, 2] * 10, [1, 2] * 20 + [3], [*([1, 2] * 14), 1, 1, 1, 2, 1]],
    ids=["shorter", "same length of another beginning", "longer of another beginning"],
)
def test_a_text_that_does_not_continue_the_old_is_taken_in_anew(proposer, other):
    proposer.propose([view("a", [5, 6, 7] * 10)])
    (draft,) = proposer.propose([view("a", other)])
    (fresh,) = proposer.propose([view("b", other)])
    assert same(draft, fresh)


def test_runner_buffers_may_be_read_only_and_strided(proposer):
    text = random_text(6)
    buffer = np.zeros((len(text), 2), np.int32)
    buffer[:, 0] = text
    plain = view("plain", text)
    strided = RequestView("strided", buffer[:, 0], 4, np.repeat(plain.uniforms, 2)[::2])
    buffer.flags.writeable = strided.token_ids.flags.writeable = strided.uniforms.flags.writeable = False
    one, other = proposer.propose([plain, strided])
    assert same(one, other)


def test_drafts_survive_the_next_step_and_the_runners_buffer(proposer):
    buffer = np.array([1, 2, 3] * 10, np.int32)
    request = RequestView("a", buffer[:20], 4, np.zeros(4))
    (draft,) = proposer.propose([request])
    kept = list(draft.token_ids)
    buffer[:] = 9
    proposer.propose([view("b", [7] * 30)])
    assert draft.token_ids == kept


def test_a_step_takes_in_only_the_new_tokens(proposer, monkeypatch):
    taken_in = []
    for state in (LookupIndex, FrequencyTables):

        def spy(self, new_tokens, extend=state.extend):
            taken_in.append(len(new_tokens))
            extend(self, new_tokens)

        monkeypatch.setattr(state, "extend", spy)
    text = random_text(8)
    for length in (100, 103, 103, 104):
        proposer.propose([view("a", text[:length]), view("b", text[: length // 2])])
    assert taken_in == [100, 50, 3, 1, 1, 1]


def test_the_constructor_runs_every_compiled_function(monkeypatch):
    entries = [(lookup, "_index"), (lookup, "_copy_continuation"), (trie, "extend"), (trie, "rehash")]
    entries += [(backoff, "draft_greedy"), (backoff, "draft_sampled")]
    ran = set()
    for module, name in entries:
        function = getattr(module, name)

        def spy(*arguments, name=name, function=function):
            ran.add(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, spy)
    make("lookup", "greedy")
    make("frequency", "sample")
    assert ran == {name for _, name in entries}


def test_requests_run_only_what_the_constructor_compiled():
    proposers = [make(*variant) for variant in VARIANTS]
    entries: list[Any] = [lookup._index, lookup._copy_continuation, trie.extend, trie.rehash]
    entries += [backoff.draft_greedy, backoff.draft_sampled]
    assert [len(function.signatures) for function in entries] == [1] * len(entries)
    for proposer in proposers:
        for length in (10, 50, 300):
            proposer.propose([view("a", random_text(7, 300)[:length])])
    assert [len(function.signatures) for function in entries] == [1] * len(entries)


def test_point_masses_are_greedy_and_ignore_uniforms():
    for uniform in (0.0, 0.99):
        request = RequestView("a", np.array(random_text(9), np.int32), 4, np.full(4, uniform), point_mass=True)
        drafts = [make("frequency", sampling).propose([request]) for sampling in ("sample", "greedy")]
        assert drafts[0] == drafts[1]
        assert drafts[0][0].probs is None
