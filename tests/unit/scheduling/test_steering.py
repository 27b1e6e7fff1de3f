"""Between vLLM's books and the policy."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.scheduling import steering as module
from vllm_spec_plugin.scheduling.draft_length.control import Drafting, Forecast, Wish
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl
from vllm_spec_plugin.scheduling.steering import Steering

DRAFT_MODEL = {"proposer": {"method": "draft_model", "model": "draft"}}
CASCADE = {"proposer": {"method": "cascade", "proposers": [{"method": "ngram"}, DRAFT_MODEL["proposer"]]}}
TREE = {"proposer": {"method": "medusa", "model": "heads", "tree": "auto"}}


class Listening(FixedControl):
    """Does what it is told, and keeps what it is told."""

    def __init__(self, lengths=None):
        self.lengths, self.wishes, self.told, self.steps = lengths, [], [], []
        self.batch: Any = None

    def plan(self, wishes, batch):
        self.wishes, self.batch = list(wishes), batch
        if self.lengths is None:
            return super().plan(wishes, batch)
        return [((0, length),) if length else () for length in self.lengths[: len(wishes)]]

    def verified(self, *told):
        self.told.append(told)

    def measured(self, step):
        self.steps.append(step)


def request(name, num_tokens=10, computed=None, max_tokens=100, num_output=1, chunk=False, **extra):
    return SimpleNamespace(
        request_id=name,
        num_tokens=num_tokens,
        num_computed_tokens=num_tokens if computed is None else computed,
        max_tokens=max_tokens,
        num_output_tokens=num_output,
        is_prefill_chunk=chunk,
        sampling_params=SimpleNamespace(extra_args=extra or None),
    )


def output(scheduled: dict[str, int], preempted=(), drafts: Any = ()) -> Any:
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        preempted_req_ids=set(preempted),
        scheduled_spec_decode_tokens=dict(drafts),
    )


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def steering(control, config=DRAFT_MODEL, tokens=4, policy="fixed"):
    config = config | {"draft_length": {"policy": policy, "tokens": tokens}}
    return Steering(control, parse_config(config, "spec.yaml"), max_model_len=64)


def end(steer, *requests, drafted=0, accepted=0, sources=None, counted=None):
    """The outcome of a step that sampled these requests."""
    for one in requests:
        steer.verified(one.request_id, drafted, accepted)
    living = {one.request_id: one for one in requests}
    steer.updated(living, counted or CountersByMethod(), sources or {}, is_busy=True)


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
    turns = steering(control).plan(step, running, 100)
    assert turns == {"plain": ((0, 4),), "two": ((0, 2),), "ends": ((0, 1),), "full": ((0, 1),)}
    assert control.batch.base_tokens == 6
    assert control.batch.num_requests == 7
    assert control.batch.others == 2
    assert control.batch.most_tokens == 94


def test_a_prompt_in_chunks_takes_its_next_chunk_of_the_room():
    control = Listening()
    running = [request("a"), request("b", num_tokens=50, computed=20, num_output=0, chunk=True)]
    steering(control).plan(output({"a": 1, "b": 10}), running, 40)
    assert control.batch.base_tokens == 1 + 30
    assert control.batch.most_tokens == 9


def test_a_gap_is_what_the_draft_model_has_not_computed():
    """At first what was not in the prefix cache, after a step with drafts nothing, then what came since."""
    control = Listening([4])
    steer = steering(control)
    a = request("a", num_tokens=40, computed=40)
    steer.plan(output({"a": 24}), [a], 100)
    assert control.wishes[0].gaps == (24,)
    a.num_tokens = 42
    end(steer, a)
    steer.plan(output({"a": 1}), [a], 100)
    assert control.wishes[0].gaps == (0,)
    control.lengths = [0]
    end(steer, a)
    for num_tokens in (43, 44, 45):
        a.num_tokens = num_tokens
        steer.plan(output({"a": 1}), [a], 100)
        end(steer, a)
    assert control.wishes[0].gaps == (3,)
    steer.plan(output({"b": 1}, preempted=["a"]), [request("b")], 100)
    a.num_computed_tokens = 45
    steer.plan(output({"a": 45}), [a], 100)
    assert control.wishes[0].gaps == (45,)


def test_tells_the_policy_how_drafts_fared_also_those_that_never_came():
    control = Listening()
    steer, a = steering(control), request("a")
    steer.plan(output({"a": 1}), [a], 100)
    end(steer, a, sources={"a": 0})
    steer.plan(output({"a": 4}), [a], 100)
    end(steer, a, drafted=3, accepted=2)
    steer.plan(output({"a": 1}), [a], 100)
    end(steer, a)
    turns = ((0, 4),)
    assert control.told == [("a", (), None, 0, 0), ("a", turns, 0, 3, 2), ("a", turns, None, 0, 0)]


def test_a_prompt_that_is_not_through_was_not_drafted_for():
    control = Listening()
    steer, a = steering(control), request("a", num_tokens=40, computed=20, num_output=0, chunk=True)
    steer.plan(output({"a": 20}), [a], 100)
    steer.updated({"a": a}, CountersByMethod(), {}, is_busy=True)
    steer.plan(output({"a": 20}), [a], 100)
    end(steer, a)
    assert control.told == [("a", (), None, 0, 0)]


def test_the_proposers_of_a_cascade_are_asked_in_turn():
    """n-gram had no guess, the draft model one; then nobody had; then n-gram: the draft model has seen none of it."""
    control = Listening()
    steer, a = steering(control, CASCADE), request("a", num_tokens=40)
    turns = ((0, 4), (1, 4))
    steer.started()
    assert steer.plan(output({"a": 24}), [a], 100) == {"a": turns}
    assert control.wishes[0].gaps == (0, 24)
    end(steer, a, sources={"a": 1})
    assert steer.source("a") == 1
    a.num_tokens = 43
    steer.started()
    steer.plan(output({"a": 5}), [a], 100)
    assert control.wishes[0].gaps == (0, 3)
    end(steer, a, drafted=4, accepted=2)
    a.num_tokens = 44
    steer.plan(output({"a": 1}), [a], 100)
    end(steer, a, sources={"a": 0})
    a.num_tokens = 49
    steer.plan(output({"a": 5}), [a], 100)
    assert control.wishes[0].gaps == (0, 6)
    end(steer, a, drafted=4, accepted=4)
    assert control.told[1:] == [("a", turns, 1, 4, 2), ("a", turns, None, 0, 0), ("a", turns, 0, 4, 4)]
    assert [did.longest for did in control.steps[0].drafting] == [4, 4]
    assert [did.caught_up for did in control.steps[0].drafting] == [0, 24]


def test_a_request_may_call_for_one_proposer_of_a_cascade():
    control = Listening()
    running = [request("a", spec_method="draft_model"), request("b", spec_method="ngram", spec_tokens=2)]
    assert steering(control, CASCADE).plan(output({"a": 1, "b": 1}), running, 100) == {"a": ((1, 4),), "b": ((0, 2),)}


def test_drafts_that_nobody_asked_for_teach_nothing():
    control = Listening()
    steer, a = steering(control), request("a", spec="off")
    steer.plan(output({"a": 1}), [a], 100)
    steer.verified("a", 0, 0)
    assert control.told == [("a", (), None, 0, 0)]


def test_a_step_is_measured_to_the_next_one_or_to_its_end_if_none_follows(clock):
    control = Listening()
    steer, a = steering(control), request("a")
    counted = CountersByMethod([StepCounters("draft_model", draft_tokens=4, proposer_seconds=0.25)])
    steer.started()
    steer.plan(output({"a": 5}), [a], 100)
    clock.now = 1.0
    end(steer, a, counted=counted)
    clock.now = 1.5
    steer.started()
    steer.plan(output({"a": 2}, drafts={"a": [7]}), [a], 100)
    clock.now = 2.0
    steer.updated({}, CountersByMethod(), {}, is_busy=False)
    clock.now = 50.0
    steer.started()
    [first, second] = control.steps
    assert (first.num_tokens, first.seconds, first.drafting) == (5, 1.5, (Drafting(4, 4, 5, 0.25),))
    assert (second.num_tokens, second.seconds, second.drafting[0].num_drafted) == (2, 0.5, 0)
    assert (first.has_drafts, second.has_drafts) == (False, True)


def test_empty_steps_are_not_measured(clock):
    control = Listening()
    steer = steering(control)
    steer.started()
    steer.plan(output({}), [], 100)
    steer.updated({}, CountersByMethod(), {}, is_busy=True)
    steer.started()
    assert control.steps == []


def test_a_tree_may_have_more_tokens_than_may_follow_each_other():
    control = Listening()
    steer = steering(control, TREE, tokens=5)
    running = [request("a"), request("b", max_tokens=4), request("c", spec_tokens=3), request("d", max_tokens=3)]
    turns = steer.plan(output(dict.fromkeys("abcd", 1)), running, 100)
    assert turns == {"a": ((0, 5),), "b": ((0, 5),), "c": ((0, 3),)}
    assert control.batch.most_tokens == 96


def test_counts_and_explains_decisions(clock, caplog):
    control = Listening([2, 0])
    control.forecast = Forecast(3.0, 0.05, 2, 0.04, ((0.8, 0.5),), "size")
    steer, running = steering(control), [request("a"), request("b")]
    with caplog.at_level("DEBUG", logger="vllm.vllm_spec_plugin"):
        module.logger.propagate = True
        steer.started()
        steer.plan(output({"a": 1, "b": 1}), running, 100)
        end(steer, *running)
        control.lengths = [0, 1]
        clock.now = 0.1
        steer.started()
        steer.plan(output({"a": 3, "b": 1}), running, 100)
        steer.verified("a", 2, 1)
        end(steer, running[1])
        clock.now = 0.16
        steer.started()
    counters = steer.take_counters().of("draft_model")
    assert counters.chosen_lengths == [2, 1, 1]
    assert counters.switched_off == 1
    assert counters.predicted_seconds == pytest.approx(0.05)
    assert counters.measured_seconds == pytest.approx(0.06)
    assert counters.expected_saved_seconds == pytest.approx(3 * 0.02 - 0.05)
    assert counters.realised_saved_seconds == pytest.approx(3 * 0.02 - 0.06)
    assert counters.acceptance == [0.8, 0.5]
    assert [step.forecast for step in control.steps[:2]] == [None, control.forecast]
    assert not steer.take_counters().to_payload()
    assert caplog.messages[0] == (
        "draft lengths a:2 b:0; expected 3.00 tokens in 50.00 ms, without 2 in 40.00 ms: 1.20 times; "
        "acceptance 0.80 0.50; to learn about another size"
    )


def test_explains_who_drafts_in_a_cascade():
    control = Listening()
    wishes = [Wish("a", (4, 4), (0, 0)), Wish("b", (4, 4), (0, 0))]
    forecast = Forecast(3.0, 0.05, 2, 0.04, ((0.8,), (0.5, 0.25)))
    line = module.explain(wishes, [((1, 3), (0, 2)), ()], forecast, ["ngram", "draft_model"])
    assert line.startswith("draft lengths a:draft_model(3)>ngram(2) b:0; expected 3.00 tokens")
    assert line.endswith("acceptance 0.80, 0.50 0.25")
    steer = steering(control, CASCADE)
    steer.plan(output({"a": 1}), [request("a", spec_tokens=3)], 100)
    counters = steer.take_counters()
    lengths = [counters.of(method).chosen_lengths for method in ("cascade", "ngram", "draft_model")]
    assert lengths == [[0, 0, 0, 1]] * 3
