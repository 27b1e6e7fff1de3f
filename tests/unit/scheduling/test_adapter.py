"""Between vLLM's books and the policy."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.messages import StepResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.scheduling import adapter as module
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.decisions import explain
from vllm_spec_plugin.scheduling.draft_length.control import Drafting, DraftRequest, Forecast
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl

DRAFT_MODEL = {"proposer": {"method": "draft_model", "model": "draft"}}
CASCADE = {"proposer": {"method": "cascade", "proposers": [{"method": "ngram"}, DRAFT_MODEL["proposer"]]}}
TREE = {"proposer": {"method": "medusa", "model": "heads", "tree": "auto"}}


class Listening(FixedControl):
    """Does what it is told, and keeps what it is told."""

    is_constant = False

    def __init__(self, lengths=None):
        self.lengths, self.requests, self.told, self.steps = lengths, [], [], []
        self.is_on = True
        self.num_plans, self.forgotten = 0, []
        self.batch: Any = None

    def is_off(self, num_requests):
        return not self.is_on

    def plan(self, wishes, batch):
        self.requests, self.batch = list(wishes), batch
        self.num_plans += 1
        if self.lengths is None:
            return super().plan(wishes, batch)
        return [((0, length),) if length else () for length in self.lengths[: len(wishes)]]

    def verified(self, *told):
        self.told.append(told)

    def measured(self, step):
        self.steps.append(step)

    def forget(self, request_id):
        self.forgotten.append(request_id)


def request(name, num_tokens=10, computed=None, max_tokens=100, num_output=1, chunk=False, **extra):
    return SimpleNamespace(
        request_id=name,
        num_tokens=num_tokens,
        num_prompt_tokens=num_tokens - num_output,
        num_computed_tokens=num_tokens if computed is None else computed,
        max_tokens=max_tokens,
        num_output_tokens=num_output,
        is_prefill_chunk=chunk,
        sampling_params=SimpleNamespace(extra_args=extra or None, thinking_token_budget=None),
        resumable=False,
        prompt_embeds=None,
        is_finished=lambda: False,
    )


def output(scheduled: dict[str, int], preempted=(), drafts: Any = (), new: Any = (), resumed: Any = ()) -> Any:
    """vLLM's plan; of `new` and `resumed` requests the tokens that the prefix cache had."""
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        preempted_req_ids=set(preempted),
        scheduled_spec_decode_tokens=dict(drafts),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=request_id, num_computed_tokens=count) for request_id, count in dict(new).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            resumed_req_ids=set(dict(resumed)),
            req_ids=list(dict(resumed)),
            num_computed_tokens=[*dict(resumed).values()],
        ),
    )


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def make(control, *requests, config=DRAFT_MODEL, tokens=4, policy="fixed"):
    config = config | {"draft_length": {"policy": policy, "tokens": tokens}}
    adapter = DraftLengthAdapter(control, parse_config(config, "spec.yaml"), 64, CountersByMethod())
    for one in requests:
        adapter.add(one)
    return adapter


def plan(adapter, step, running, most_tokens=100):
    return adapter.plan(step, running, lambda: most_tokens)


def end(adapter, *requests, drafted=0, accepted=0, sources=None, counted=None, waiting=(), is_busy=True):
    """The outcome of a step that sampled these requests, and computed a part of the prompt of those `waiting`."""
    for one in requests:
        if drafted or one.request_id in adapter.pending:
            adapter.verified(one.request_id, drafted, accepted, one.num_output_tokens + accepted + 1, None)
    everyone = [*requests, *waiting]
    outcome = SimpleNamespace(
        req_id_to_index={one.request_id: i for i, one in enumerate(everyone)},
        sampled_token_ids=[[0] * (accepted + 1) for _ in requests] + [[] for _ in waiting],
    )
    living = {one.request_id: one for one in everyone}
    num_output = len(requests) * (accepted + 1)
    result = StepResult(counted, sources or {})
    adapter.updated(living, outcome, result, num_output=num_output, is_busy=is_busy)


def counted_of(adapter, method="draft_model"):
    return CountersByMethod.from_payload(adapter._decisions._counters.take_payload()).of(method)


def test_asks_for_requests_of_the_step_within_what_they_may_still_say():
    control = Listening()
    running = [
        request("plain"),
        request("off", spec="off"),
        request("two", spec_tokens=2),
        request("ends", max_tokens=4, num_output=1),
        request("over", max_tokens=3, num_output=1),
        request("full", num_tokens=61),
        request("waits"),
    ]
    step = output(dict.fromkeys(["plain", "off", "two", "ends", "over", "full"], 1))
    turns = plan(make(control, *running), step, running)
    assert turns == {"plain": ((0, 4),), "two": ((0, 2),), "ends": ((0, 1),), "full": ((0, 1),)}
    assert control.batch.base_tokens == 6
    assert control.batch.num_requests == 7
    assert control.batch.others == 2
    assert control.batch.most_tokens == 94


def test_a_request_without_drafts_is_counted_once_and_told_from_one_that_wants_none():
    session, off = request("session"), request("off", spec="off")
    session.resumable = True
    control = Listening()
    adapter = make(control, session, off)
    for _ in range(3):
        assert plan(adapter, output({"session": 1, "off": 1}), [session, off]) == {}
        end(adapter, session, off)
    assert counted_of(adapter).without_drafts == {"resumable": 1}
    for one in (session, off):
        adapter.forget(one.request_id)
    assert (control.num_plans, control.told, control.forgotten) == (0, [], [])


def test_a_prompt_in_chunks_takes_its_next_chunk_of_the_room():
    control = Listening()
    running = [request("a"), request("b", num_tokens=50, computed=20, num_output=0, chunk=True)]
    plan(make(control, *running), output({"a": 1, "b": 10}), running, 40)
    assert control.batch.base_tokens == 1 + 30
    assert control.batch.most_tokens == 9


def test_uncomputed_is_what_the_draft_model_has_not_computed():
    """At first what was not in the prefix cache, after a step with drafts nothing, then what came since."""
    control = Listening([4])
    a = request("a", num_tokens=40, computed=40)
    adapter = make(control, a)
    plan(adapter, output({"a": 24}, new={"a": 16}), [a])
    assert control.requests[0].uncomputed_tokens == (24,)
    a.num_tokens = 42
    end(adapter, a)
    plan(adapter, output({"a": 1}), [a])
    assert control.requests[0].uncomputed_tokens == (0,)
    control.lengths = [0]
    end(adapter, a)
    for num_tokens in (43, 44, 45):
        a.num_tokens = num_tokens
        plan(adapter, output({"a": 1}), [a])
        end(adapter, a)
    assert control.requests[0].uncomputed_tokens == (3,)
    plan(adapter, output({}, preempted=["a"]), [])
    end(adapter)
    plan(adapter, output({"a": 35}, resumed={"a": 10}), [a])
    assert control.requests[0].uncomputed_tokens == (35,)


def test_what_the_prefix_cache_had_is_known_of_requests_that_came_while_nothing_was_drafted():
    control = Listening()
    control.is_on = False
    a = request("a", num_tokens=40)
    adapter = make(control, a)
    plan(adapter, output({"a": 24}, new={"a": 16}), [a])
    end(adapter, a)
    control.is_on = True
    a.num_tokens += 1
    plan(adapter, output({"a": 1}), [a])
    assert control.requests[0].uncomputed_tokens == (25,)


def test_tells_the_policy_how_drafts_fared_also_those_that_never_came():
    control, a = Listening(), request("a")
    adapter = make(control, a)
    plan(adapter, output({"a": 1}), [a])
    end(adapter, a, sources={"a": 0})
    a.num_output_tokens = 2
    plan(adapter, output({"a": 4}), [a])
    assert control.requests[0].num_output_tokens == 2
    end(adapter, a, drafted=3, accepted=2)
    a.num_output_tokens = 5
    plan(adapter, output({"a": 1}), [a])
    end(adapter, a)
    turns = ((0, 4),)
    assert control.told == [("a", turns, 0, 3, 2, 5, None), ("a", turns, None, 0, 0, 6, None)]


def test_passes_on_which_nodes_of_a_tree_were_accepted():
    control, a = Listening(), request("a")
    adapter = make(control, a, config=TREE)
    plan(adapter, output({"a": 1}), [a])
    end(adapter, a, sources={"a": 0})
    plan(adapter, output({"a": 5}), [a])
    adapter.verified("a", 4, 2, 4, (1, 3))
    assert control.told == [("a", ((0, 4),), 0, 4, 2, 4, (1, 3))]


def test_a_prompt_that_is_not_through_was_not_drafted_for():
    control = Listening()
    a = request("a", num_tokens=40, computed=20, num_output=0, chunk=True)
    adapter = make(control, a)
    assert plan(adapter, output({"a": 20}), [a])
    end(adapter, waiting=[a])
    assert not adapter.pending
    plan(adapter, output({"a": 20}), [a])
    end(adapter, a)
    assert "a" in adapter.pending
    assert control.told == []


def test_the_proposers_of_a_cascade_are_asked_in_turn():
    """n-gram had no guess, the draft model one; then nobody had; then n-gram: the draft model has seen none of it."""
    control, a = Listening(), request("a", num_tokens=40)
    adapter = make(control, a, config=CASCADE)
    turns = ((0, 4), (1, 4))
    adapter.started()
    assert plan(adapter, output({"a": 24}, new={"a": 16}), [a]) == {"a": turns}
    assert control.requests[0].uncomputed_tokens == (0, 24)
    end(adapter, a, sources={"a": 1}, counted=CountersByMethod([StepCounters("draft_model", draft_tokens=4)]))
    assert adapter.source("a") == 1
    a.num_tokens = 43
    adapter.started()
    plan(adapter, output({"a": 5}), [a])
    assert control.requests[0].uncomputed_tokens == (0, 3)
    end(adapter, a, drafted=4, accepted=2)
    a.num_tokens = 44
    plan(adapter, output({"a": 1}), [a])
    end(adapter, a, sources={"a": 0})
    a.num_tokens = 49
    plan(adapter, output({"a": 5}), [a])
    assert control.requests[0].uncomputed_tokens == (0, 6)
    end(adapter, a, drafted=4, accepted=4)
    told = [(turns, source, drafted, accepted) for _, turns, source, drafted, accepted, *_ in control.told]
    assert told == [(turns, 1, 4, 2), (turns, None, 0, 0), (turns, 0, 4, 4)]
    assert [did.longest for did in control.steps[0].drafting] == [4, 4]
    assert [did.caught_up for did in control.steps[0].drafting] == [0, 24]


def test_a_request_may_call_for_one_proposer_of_a_cascade():
    running = [request("a", spec_method="draft_model"), request("b", spec_method="ngram", spec_tokens=2)]
    adapter = make(Listening(), *running, config=CASCADE)
    assert plan(adapter, output({"a": 1, "b": 1}), running) == {"a": ((1, 4),), "b": ((0, 2),)}


def test_drafts_that_nobody_asked_for_teach_nothing():
    control, a = Listening(), request("a", spec="off")
    adapter = make(control, a)
    plan(adapter, output({"a": 1}), [a])
    adapter.verified("a", 1, 0, 2, None)
    assert control.told == []


def test_a_policy_that_is_off_is_told_of_steps_and_of_nothing_else(clock):
    """Work per request would need requests to say more than the step's size."""
    control = Listening()
    control.is_on = False
    running = [SimpleNamespace(num_computed_tokens=5), SimpleNamespace(num_computed_tokens=7)]
    adapter = make(control, request("a"), request("b"))
    for now in (1.0, 1.5, 2.0):
        clock.now = now
        adapter.started()
        assert plan(adapter, output({"a": 1, "b": 1}), running, None) == {}
        adapter.updated({}, None, None, num_output=2, is_busy=True)
    assert (control.num_plans, control.told) == (0, [])
    [step, _] = control.steps
    assert (step.num_tokens, step.num_requests, step.context, step.seconds, step.num_output) == (2, 2, 12, 0.5, 2)
    assert (step.has_drafts, step.num_drafts, step.num_accepted) == (False, 0, 0)
    assert step.drafting == (Drafting(0, 0, 0, 0.0),)
    assert counted_of(adapter).chosen_lengths == [6]


def test_a_policy_that_goes_off_switches_requests_off():
    control, running = Listening(), [request("a"), request("b"), request("c", spec="off")]
    adapter, step = make(control, *running), output({"a": 1, "b": 1, "c": 1})
    plan(adapter, step, running)
    control.is_on = False
    for _ in range(2):
        end(adapter, *running)
        plan(adapter, step, running)
    counters = counted_of(adapter)
    assert (counters.switched_off, counters.chosen_lengths) == (2, [4, 0, 0, 0, 2])


@pytest.mark.parametrize(("config", "turns"), [(DRAFT_MODEL, ((0, 4),)), (CASCADE, ((0, 4), (1, 4)))])
def test_a_constant_policy_is_called_once_per_combination_of_limits(config, turns):
    control = Listening()
    control.is_constant = True
    running = [request("a"), request("b"), request("c", spec_tokens=2), request("d", spec="off")]
    adapter = make(control, *running, config=config)
    step = output(dict.fromkeys("abcd", 1))
    short = tuple((i, 2) for i, _ in turns)
    for _ in range(3):
        adapter.started()
        assert plan(adapter, step, running, None) == {"a": turns, "b": turns, "c": short}
        end(adapter, *running, sources=dict.fromkeys("abc", len(turns) - 1))
        assert adapter.source("a") == len(turns) - 1
    assert (control.num_plans, control.told, control.steps) == (2, [], [])
    assert counted_of(adapter, adapter._decisions._method).chosen_lengths == [0, 0, 3, 0, 6]


def test_a_step_is_measured_to_the_next_one_or_to_its_end_if_none_follows(clock):
    control, a = Listening(), request("a")
    adapter = make(control, a)
    counted = CountersByMethod([StepCounters("draft_model", draft_tokens=4, proposer_seconds=0.25)])
    adapter.started()
    plan(adapter, output({"a": 5}, new={"a": 5}), [a])
    clock.now = 1.0
    end(adapter, a, counted=counted)
    clock.now = 1.5
    adapter.started()
    plan(adapter, output({"a": 2}, drafts={"a": [7]}), [a])
    clock.now = 2.0
    end(adapter, a, drafted=1, accepted=1, is_busy=False)
    clock.now = 50.0
    adapter.started()
    [first, second] = control.steps
    assert (first.num_tokens, first.seconds, first.drafting) == (5, 1.5, (Drafting(4, 4, 5, 0.25),))
    assert (second.num_tokens, second.seconds, second.drafting[0].num_drafted) == (2, 0.5, 0)
    assert (first.has_drafts, second.has_drafts) == (False, True)
    assert (second.num_drafts, second.num_accepted, second.num_output) == (1, 1, 2)


def test_empty_steps_are_not_measured(clock):
    control = Listening()
    adapter = make(control)
    adapter.started()
    plan(adapter, output({}), [])
    end(adapter)
    adapter.started()
    assert control.steps == []


def test_a_tree_may_have_more_tokens_than_may_follow_each_other():
    control = Listening()
    running = [request("a"), request("b", max_tokens=4), request("c", spec_tokens=3), request("d", max_tokens=3)]
    adapter = make(control, *running, config=TREE, tokens=5)
    turns = plan(adapter, output(dict.fromkeys("abcd", 1)), running)
    assert turns == {"a": ((0, 5),), "b": ((0, 5),), "c": ((0, 3),)}
    assert control.batch.most_tokens == 96


def test_counts_and_explains_decisions(clock, caplog):
    control = Listening([2, 0])
    control.forecast = Forecast(3.0, 0.05, 2, 0.04, is_trial=True)
    control.acceptance = ((0.8, 0.5),)
    running = [request("a"), request("b")]
    adapter = make(control, *running)
    with caplog.at_level("DEBUG", logger="vllm.vllm_spec_plugin"):
        module.logger.propagate = True
        adapter.started()
        plan(adapter, output({"a": 1, "b": 1}), running)
        end(adapter, *running)
        control.lengths = [0, 1]
        clock.now = 0.1
        adapter.started()
        plan(adapter, output({"a": 3, "b": 1}), running)
        end(adapter, *running, drafted=2, accepted=1)
        clock.now = 0.16
        adapter.started()
    adapter.note_estimates()
    counters = counted_of(adapter)
    assert counters.chosen_lengths == [2, 1, 1]
    assert counters.switched_off == 1
    assert counters.predicted_seconds == pytest.approx(0.05)
    assert counters.measured_seconds == pytest.approx(0.06)
    assert counters.expected_saved_seconds == pytest.approx(3 * 0.02 - 0.05)
    assert counters.realised_saved_seconds == pytest.approx(4 * 0.02 - 0.06)
    assert counters.acceptance == [0.8, 0.5]
    assert [step.forecast for step in control.steps[:2]] == [None, control.forecast]
    assert not adapter._decisions._counters
    assert caplog.messages[0] == (
        "draft lengths a:2 b:0; expected 3.00 tokens in 50.00 ms, without 2 in 40.00 ms: 1.20 times; "
        "acceptance 0.80 0.50; with a trial"
    )


def test_explains_who_drafts_in_a_cascade():
    control = Listening()
    requests = [DraftRequest("a", (4, 4), (0, 0)), DraftRequest("b", (4, 4), (0, 0))]
    forecast = Forecast(3.0, 0.05, 2, 0.04)
    line = explain(requests, [((1, 3), (0, 2)), ()], forecast, ((0.8,), (0.5, 0.25)), ["ngram", "draft_model"])
    assert line.startswith("draft lengths a:draft_model(3)>ngram(2) b:0; expected 3.00 tokens")
    assert line.endswith("acceptance 0.80, 0.50 0.25")
    a = request("a", spec_tokens=3)
    adapter = make(control, a, config=CASCADE)
    plan(adapter, output({"a": 1}), [a])
    lengths = [adapter._decisions._counters.of(method).chosen_lengths for method in ("cascade", "ngram", "draft_model")]
    assert lengths == [[0, 0, 0, 1]] * 3


def test_a_step_may_be_planned_without_drafts_whatever_the_policy_says(clock):
    control, one = Listening(), request("a")
    adapter = make(control, one)
    assert adapter.plan(output({"a": 1}), [one], lambda: 100, may_draft=False) == {}
    assert not control.num_plans
    assert adapter.plan(output({"a": 1}), [one], lambda: 100)
