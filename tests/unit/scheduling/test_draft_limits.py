"""Tests a request's draft limit: its own options, and the room left in its text."""

from tests.unit.scheduling.adapters import CASCADE, TREE, Listening, make, output, plan, request


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
    draft_plan = plan(make(control, *running), step, running)
    assert draft_plan == {"plain": ((0, 4),), "two": ((0, 2),), "ends": ((0, 1),), "full": ((0, 1),)}
    assert control.batch.base_tokens == 6
    assert control.batch.num_requests == 7
    assert control.batch.others == 2
    assert control.batch.max_draft_tokens == 94


def test_a_tree_may_have_more_tokens_than_may_follow_each_other():
    control = Listening()
    running = [request("a"), request("b", max_tokens=4), request("c", spec_tokens=3), request("d", max_tokens=3)]
    adapter = make(control, *running, config=TREE, tokens=5)
    draft_plan = plan(adapter, output(dict.fromkeys("abcd", 1)), running)
    assert draft_plan == {"a": ((0, 5),), "b": ((0, 5),), "c": ((0, 3),)}
    assert control.batch.max_draft_tokens == 96


def test_a_request_may_call_for_one_proposer_of_a_cascade():
    running = [request("a", spec_method="draft_model"), request("b", spec_method="ngram", spec_tokens=2)]
    adapter = make(Listening(), *running, config=CASCADE)
    assert plan(adapter, output({"a": 1, "b": 1}), running) == {"a": ((1, 4),), "b": ((0, 2),)}
