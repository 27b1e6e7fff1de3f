"""Between vLLM's books and the policy: limits, plans, outcomes, measured steps, and counted decisions."""

from types import SimpleNamespace

import pytest

from tests.unit.scheduling.adapters import (
    CASCADE,
    DRAFT_MODEL,
    TREE,
    Listening,
    counted_of,
    end,
    make,
    output,
    plan,
    request,
)
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.policy.control import Drafting, StepForecast
from vllm_spec_plugin.scheduling import step_planner as module
from vllm_spec_plugin.scheduling.adapter import DrafterTraits, DraftLengthAdapter
from vllm_spec_plugin.scheduling.decision_counters import DecisionCounters
from vllm_spec_plugin.scheduling.eligibility import scope_of

THEN_GRAMMAR = {"proposer": {"method": "cascade", "proposers": [{"method": "suffix"}, {"method": "grammar"}]}}


def test_a_prompt_in_chunks_takes_its_next_chunk_of_the_room():
    control = Listening()
    running = [request("a"), request("b", num_tokens=50, computed=20, num_output=0, chunk=True)]
    plan(make(control, *running), output({"a": 1, "b": 10}), running, 40)
    assert control.batch.base_tokens == 1 + 30
    assert control.batch.max_draft_tokens == 9


@pytest.mark.parametrize(
    ("samples_drafts", "grammar", "temperature", "served"),
    [(True, object(), 1.0, False), (True, object(), 0.0, True), (True, None, 1.0, True), (False, object(), 1.0, True)],
)
def test_vllms_sampled_drafts_are_not_for_what_a_grammar_may_cut(samples_drafts, grammar, temperature, served):
    config = parse_config({"proposer": {"method": "vllm", "config": {"method": "draft_model", "model": "d"}}}, "a.yaml")
    counters, asked = CountersByMethod(), request("a")
    asked.sampling_params.structured_outputs, asked.sampling_params.temperature = grammar, temperature
    traits = DrafterTraits(samples_drafts=samples_drafts)
    adapter = DraftLengthAdapter(Listening(), config, 64, counters, traits)
    adapter.add(asked)
    assert ("a" in adapter.requests.ids) == served
    assert counters.of("vllm").without_drafts == ({} if served else {"grammar": 1})


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
    draft_plan = ((0, 4),)
    assert control.told == [("a", draft_plan, 0, 3, 2, None), ("a", draft_plan, None, 0, 0, None)]


def test_passes_on_which_nodes_of_a_tree_were_accepted():
    control, a = Listening(), request("a")
    adapter = make(control, a, config=TREE)
    plan(adapter, output({"a": 1}), [a])
    end(adapter, a, sources={"a": 0})
    plan(adapter, output({"a": 5}), [a])
    adapter.verified(adapter.take_step(), "a", 4, 2, (1, 3))
    assert control.told == [("a", ((0, 4),), 0, 4, 2, (1, 3))]


def test_the_proposers_of_a_cascade_are_asked_in_turn():
    """n-gram had no guess, the draft model one; then nobody had; then n-gram: the draft model has seen none of it."""
    control, a = Listening(), request("a", num_tokens=40)
    adapter = make(control, a, config=CASCADE)
    draft_plan = ((0, 4), (1, 4))
    assert plan(adapter, output({"a": 24}, new={"a": 16}), [a]) == {"a": draft_plan}
    assert control.requests[0].uncomputed_tokens == (0, 24)
    end(adapter, a, sources={"a": 1}, counted=CountersByMethod([StepCounters("draft_model", draft_tokens=4)]))
    assert adapter.source("a") == 1
    a.num_tokens = 43
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
    told = [(draft_plan, source, drafted, accepted) for _, draft_plan, source, drafted, accepted, *_ in control.told]
    assert told == [(draft_plan, 1, 4, 2), (draft_plan, None, 0, 0), (draft_plan, 0, 4, 4)]
    assert [did.longest for did in control.steps[1].drafting] == [4, 4]
    assert [did.caught_up for did in control.steps[1].drafting] == [0, 24]


def test_a_policy_that_is_off_is_told_of_steps_and_of_nothing_else(clock):
    """Work per request would need requests to say more than the step's size."""
    control = Listening()
    control.is_on = False
    running = [SimpleNamespace(num_computed_tokens=5), SimpleNamespace(num_computed_tokens=7)]
    adapter = make(control, request("a"), request("b"))
    for now in (1.0, 1.5, 2.0):
        assert plan(adapter, output({"a": 1, "b": 1}), running, None) == {}
        clock.now = now
        adapter.ended(adapter.take_step(), 2, is_busy=True)
    assert (control.num_plans, control.told) == (0, [])
    [_, step, _] = control.steps
    assert (step.num_tokens, step.num_requests, step.context, step.seconds, step.num_output) == (2, 2, 12, 0.5, 2)
    assert (step.has_drafts, step.num_drafts, step.num_accepted) == (False, 0, 0)
    assert step.drafting == (Drafting(0, 0, 0, 0.0),)
    assert counted_of(control).chosen_lengths == [6]


def test_steps_are_not_measured_while_no_request_may_draft():
    control, quiet, drafting = Listening(), request("quiet", spec="off"), request("drafting")
    adapter = make(control, quiet)

    def step(*running):
        plan(adapter, output({one.request_id: 1 for one in running}), running)
        end(adapter, *running)

    step(quiet)
    step(quiet)
    adapter.add(drafting)
    step(quiet, drafting)
    assert [measured.num_requests for measured in control.steps] == [2]


@pytest.mark.parametrize(("config", "draft_plan"), [(DRAFT_MODEL, ((0, 4),)), (CASCADE, ((0, 4), (1, 4)))])
def test_a_constant_policy_is_called_once_per_combination_of_limits(config, draft_plan):
    control = Listening()
    control.is_constant = True
    running = [request("a"), request("b"), request("c", spec_tokens=2), request("d", spec="off")]
    adapter = make(control, *running, config=config)
    step = output(dict.fromkeys("abcd", 1))
    short = tuple((i, 2) for i, _ in draft_plan)
    for _ in range(3):
        assert plan(adapter, step, running, None) == {"a": draft_plan, "b": draft_plan, "c": short}
        end(adapter, *running, sources=dict.fromkeys("abc", len(draft_plan) - 1))
        assert adapter.source("a") == len(draft_plan) - 1
    assert (control.num_plans, control.told, control.steps) == (2, [], [])
    assert counted_of(control, config["proposer"]["method"]).chosen_lengths == [0, 0, 3, 0, 6]


def test_a_step_is_measured_from_outcome_to_outcome_or_from_its_planning_after_a_pause(clock):
    """And includes the drafting of what it verifies."""
    control, a = Listening(), request("a")
    adapter = make(control, a)
    counted = CountersByMethod([StepCounters("draft_model", draft_tokens=4, proposer_seconds=0.25)])
    clock.now = 0.5
    plan(adapter, output({"a": 5}, new={"a": 5}), [a])
    clock.now = 1.0
    end(adapter, a, counted=counted)
    clock.now = 1.5
    plan(adapter, output({"a": 2}, drafts={"a": [7]}), [a])
    clock.now = 2.0
    end(adapter, a, drafted=1, accepted=1, is_busy=False)
    clock.now = 50.0
    plan(adapter, output({"a": 1}), [a])
    clock.now = 50.25
    end(adapter, a)
    [first, second, third] = control.steps
    assert (first.num_tokens, first.seconds, first.drafting) == (5, 0.5, (Drafting(0, 0, 0, 0.0),))
    assert (second.num_tokens, second.seconds, second.drafting) == (2, 1.0, (Drafting(4, 4, 5, 0.25),))
    assert (third.seconds, third.drafting) == (0.25, first.drafting)
    assert (first.has_drafts, second.has_drafts) == (False, True)
    assert (second.num_drafts, second.num_accepted, second.num_output) == (1, 1, 2)


def test_drafts_of_a_request_that_a_step_leaves_out_are_verified_later():
    """If the plugin's proposers made them; vLLM's runner drops its own."""
    control, a, b = Listening(), request("a"), request("b")
    adapter = make(control, a, b)
    plan(adapter, output({"a": 1, "b": 1}), [a, b])
    end(adapter, a, b, sources={"a": 0, "b": 0})
    plan(adapter, output({"a": 5}), [a, b])
    end(adapter, a, drafted=4, accepted=1)
    plan(adapter, output({"b": 5}), [a, b])
    assert adapter.latest.drafted_as == {"b": (((0, 4),), 0, None)}


def test_a_step_is_drafted_after_until_the_next_one_is_planned():
    """With pipeline stages a second step is planned before the first one's outcome."""
    adapter = make(Listening(), a := request("a"))
    plan(adapter, output({"a": 1}), [a])
    adapter.ended(adapter.take_step(), 1, is_busy=True)
    assert adapter.latest_ended.draft_plans == {"a": ((0, 4),)}
    plan(adapter, output({}), [a])
    assert not adapter.latest_ended.draft_plans


@pytest.mark.parametrize(
    ("accepted", "told", "parts"),
    [
        (1, [(((0, 4), (1, 4)), 0, 2, 1)], ((0, 2, 1),)),
        (2, [(((0, 4), (1, 4)), 0, 2, 2), (((1, 3),), 1, 3, 0)], ((0, 2, 2), (1, 3, 0))),
        (5, [(((0, 4), (1, 4)), 0, 2, 2), (((1, 3),), 1, 3, 3)], ((0, 2, 2), (1, 3, 3))),
    ],
)
def test_a_grammar_that_continues_a_draft_is_credited_with_its_part(accepted, told, parts):
    """Two tokens of suffix, then three of the grammar, to which verification may not come."""
    control, a = Listening(), request("a")
    a.sampling_params.structured_outputs = object()
    adapter = make(control, a, config=THEN_GRAMMAR)
    plan(adapter, output({"a": 1}), [a])
    adapter.ended(adapter.take_step(), 1, is_busy=True)
    adapter.drafted({"a": a}, DraftResult(None, {"a": 0}, {"a": 2}))
    plan(adapter, output({"a": 6}), [a])
    assert adapter.verified(adapter.take_step(), "a", 5, accepted) == parts
    assert [(plan, source, *counts[:2]) for _, plan, source, *counts in control.told] == told


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


def test_counts_and_explains_decisions(clock, caplog):
    control = Listening([2, 0])
    control.forecast = StepForecast(3.0, 0.05, 2, 0.04, 0.02)
    control.acceptance = ((0.8, 0.5),)
    running = [request("a"), request("b")]
    adapter = make(control, *running)
    with caplog.at_level("DEBUG", logger="vllm.vllm_spec_plugin"):
        module.logger.propagate = True
        plan(adapter, output({"a": 1, "b": 1}), running)
        clock.now = 0.1
        end(adapter, *running)
        control.lengths = [0, 1]
        plan(adapter, output({"a": 3, "b": 1}), running)
        clock.now = 0.16
        end(adapter, *running, drafted=2, accepted=1)
    adapter.note_estimates()
    counters = counted_of(control)
    assert counters.chosen_lengths == [2, 1, 1]
    assert counters.switched_off == 1
    assert counters.predicted_seconds == pytest.approx(0.05)
    assert counters.measured_seconds == pytest.approx(0.06)
    assert counters.expected_saved_seconds == pytest.approx(3 * 0.02 - 0.05)
    assert counters.realised_saved_seconds == pytest.approx(4 * 0.02 - 0.06)
    assert counters.acceptance == [0.8, 0.5]
    assert [step.forecast for step in control.steps[:2]] == [None, control.forecast]
    assert caplog.messages[0].startswith("draft lengths a:2 b:0; expected 3.00 tokens in 50.00 ms, without 2 in 40.00")


def test_a_token_accepted_beside_a_prompt_saves_a_share_of_a_later_step_without_prompts():
    """Two requests decode beside a prompt in 0.1 s; without it a step takes 0.04 s."""
    counters = CountersByMethod()
    DecisionCounters(counters, "ngram", ["ngram"]).compare(StepForecast(3.5, 0.105, 2, 0.1, 0.02), 4, 0.11)
    assert counters.of("ngram").expected_saved_seconds == pytest.approx(1.5 * 0.02 - 0.005)
    assert counters.of("ngram").realised_saved_seconds == pytest.approx(2 * 0.02 - 0.01)


@pytest.mark.parametrize(
    ("cache_salt", "shared_scope", "scope"),
    [
        ("secret", "salt", "salt:secret"),
        ("secret", "global", "salt:secret"),
        (None, "salt", None),
        ("", "salt", None),
        (None, "global", "global"),
        ("", "global", "global"),
    ],
)
def test_the_scope_is_the_salt(cache_salt, shared_scope, scope):
    assert scope_of(cache_salt, shared_scope) == scope


@pytest.mark.parametrize("salt", ["global", "salt:", ":", "salt:global"])
def test_no_salt_names_the_scope_of_those_without(salt):
    assert scope_of(salt, "global") != scope_of(None, "global")
