"""Between vLLM's books and the policy."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.scheduling import steering as module
from vllm_spec_plugin.scheduling.draft_length.control import Forecast
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl
from vllm_spec_plugin.scheduling.steering import Steering

DRAFT_MODEL = {"proposer": {"method": "draft_model", "model": "draft"}}
TREE = {"proposer": {"method": "medusa", "model": "heads", "tree": "auto"}}


class Listening(FixedControl):
    """Does what it is told, and keeps what it is told."""

    def __init__(self, lengths=None):
        self.lengths, self.wishes, self.told, self.steps = lengths, [], [], []
        self.batch: Any = None

    def plan(self, wishes, batch):
        self.wishes, self.batch = list(wishes), batch
        return [wish.limit for wish in wishes] if self.lengths is None else self.lengths[: len(wishes)]

    def verified(self, request_id, asked, drafted, accepted):
        self.told.append((request_id, asked, drafted, accepted))

    def advance(self, request_id, num_tokens):
        self.told.append((request_id, num_tokens))

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


def output(scheduled: dict[str, int], preempted=()) -> Any:
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        preempted_req_ids=set(preempted),
    )


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def steering(control, config=DRAFT_MODEL, tokens=4, policy="fixed"):
    config = config | {"draft_length": {"policy": policy, "tokens": tokens}}
    return Steering(control, parse_config(config, "spec.yaml"), max_model_len=64)


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
    lengths = steering(control).plan(step, running, 100)
    assert lengths == {"plain": 4, "two": 2, "ends": 1, "full": 1}
    assert control.batch.base_tokens == 6
    assert control.batch.num_requests == 7
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
    assert control.wishes[0].gap == 24
    a.num_tokens = 42
    steer.updated({"a": a}, None, is_busy=True)
    steer.plan(output({"a": 1}), [a], 100)
    assert control.wishes[0].gap == 0
    control.lengths = [0]
    steer.updated({"a": a}, None, is_busy=True)
    for num_tokens in (43, 44, 45):
        a.num_tokens = num_tokens
        steer.plan(output({"a": 1}), [a], 100)
        steer.updated({"a": a}, None, is_busy=True)
    assert control.wishes[0].gap == 3
    steer.plan(output({"b": 1}, preempted=["a"]), [request("b")], 100)
    a.num_computed_tokens = 45
    steer.plan(output({"a": 45}), [a], 100)
    assert control.wishes[0].gap == 45


def test_tells_the_policy_how_drafts_fared_also_those_that_never_came():
    control = Listening()
    steer, a = steering(control), request("a")
    steer.plan(output({"a": 1}), [a], 100)
    steer.updated({"a": a}, None, is_busy=True)
    steer.plan(output({"a": 4}), [a], 100)
    steer.verified("a", 3, 2)
    steer.updated({"a": a}, None, is_busy=True)
    steer.plan(output({"a": 1}), [a], 100)
    steer.verified("a", 0, 0)
    assert control.told == [("a", 4, 3, 2), ("a", 3), ("a", 4, 0, 0), ("a", 1)]


def test_drafts_that_nobody_asked_for_teach_nothing():
    control = Listening()
    steer, a = steering(control), request("a", spec="off")
    steer.plan(output({"a": 1}), [a], 100)
    steer.verified("a", 0, 0)
    assert control.told == [("a", 1)]


def test_a_step_is_measured_to_the_next_one_or_to_its_end_if_none_follows(clock):
    control = Listening()
    steer, a = steering(control), request("a")
    counters = StepCounters("draft_model", draft_tokens=4, proposer_seconds=0.25)
    steer.started()
    steer.plan(output({"a": 5}), [a], 100)
    clock.now = 1.0
    steer.updated({"a": a}, counters, is_busy=True)
    clock.now = 1.5
    steer.started()
    steer.plan(output({"a": 2}), [a], 100)
    clock.now = 2.0
    steer.updated({}, None, is_busy=False)
    clock.now = 50.0
    steer.started()
    [first, second] = control.steps
    assert (first.num_tokens, first.seconds, first.draft_seconds) == (5, 1.5, 0.25)
    assert (first.longest, first.num_drafted) == (4, 4)
    assert (second.num_tokens, second.seconds, second.num_drafted) == (2, 0.5, 0)


def test_empty_steps_are_not_measured(clock):
    control = Listening()
    steer = steering(control)
    steer.started()
    steer.plan(output({}), [], 100)
    steer.updated({}, None, is_busy=True)
    steer.started()
    assert control.steps == []


def test_trees_are_drafted_whole_or_not_at_all():
    control = Listening()
    steer = steering(control, TREE, tokens=5)
    running = [request("a"), request("b", max_tokens=4), request("c", spec_tokens=3), request("d", max_tokens=3)]
    lengths = steer.plan(output(dict.fromkeys("abcd", 1)), running, 100)
    assert [wish.limit for wish in control.wishes] == [1, 1, 1]
    assert lengths == {"a": 5, "b": 5, "c": 3}
    assert control.batch.most_tokens == 96 // 5


def test_counts_and_explains_decisions(clock, caplog):
    control = Listening([2, 0])
    control.forecast = Forecast(3.0, 0.05, 0.02, (0.8, 0.5), "size")
    steer, running = steering(control), [request("a"), request("b")]
    with caplog.at_level("DEBUG", logger="vllm.vllm_spec_plugin"):
        module.logger.propagate = True
        steer.started()
        steer.plan(output({"a": 1, "b": 1}), running, 100)
        steer.updated({"a": running[0], "b": running[1]}, None, is_busy=True)
        control.lengths = [0, 1]
        clock.now = 0.1
        steer.started()
        steer.plan(output({"a": 3, "b": 1}), running, 100)
        steer.verified("a", 2, 1)
        steer.verified("b", 0, 0)
        steer.updated({}, None, is_busy=True)
        clock.now = 0.16
        steer.started()
    counters = steer.take_counters()
    assert counters.chosen_lengths == [2, 1, 1]
    assert counters.switched_off == 1
    assert counters.predicted_seconds == pytest.approx(0.05)
    assert counters.measured_seconds == pytest.approx(0.06)
    assert counters.expected_saved_seconds == pytest.approx(3 * 0.02 - 0.05)
    assert counters.realised_saved_seconds == pytest.approx(3 * 0.02 - 0.06)
    assert counters.acceptance == [0.8, 0.5]
    assert steer.take_counters() == StepCounters("draft_model")
    assert caplog.messages[0] == (
        "draft lengths a:2 b:0; expected 3.00 tokens in 50.00 ms, without 2 in 40.00 ms: 1.20 times; "
        "acceptance 0.80 0.50; to learn about another size"
    )
