"""The table of rules: for each way to draft, whether a rule holds, what is refused instead, or why it is not needed."""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from vllm_spec_plugin.config import request_options
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS, StepCounters

REPOSITORY = Path(__file__).parents[2]
_ALERTS = REPOSITORY / "deploy/prometheus/alerts.yml"
# An answer is one of these, or begins with one of the prefixes.
HOLDS = "holds"
SHOWN, REFUSED, NOT_NEEDED = "shown by ", "refused: ", "not needed: "

_VLLM = {Way.VLLM_V1, Way.VLLM_V2, Way.VLLM_ASYNC}
_BEFORE_VLLM = {Way.TOKEN_ONLY_VLLM_V1, Way.TOKEN_ONLY_VLLM_V2}
_HEADS = {Way.HEADS, Way.HEADS_ASYNC}
_TOKEN_ONLY = {Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1, Way.TOKEN_ONLY_HEADS, *_BEFORE_VLLM}
_OWN = {Way.OWN, Way.TOKEN_ONLY_V1}
_BY_VLLM = set(Way) - _OWN
_V1_BY_VLLM = {Way.VLLM_V1, Way.VLLM_ASYNC, Way.TOKEN_ONLY_VLLM_V1}
_ASYNC = {Way.VLLM_ASYNC, Way.HEADS_ASYNC}


class Rule(NamedTuple):
    """A rule of serving.

    Attributes:
        group: the list of the code that has the rule, or the heading of those that no list has.
        name: the rule's name in that list.
        statement: the rule, in a phrase.
        answers: each way's answer.
    """

    group: str
    name: str
    statement: str
    answers: Mapping[Way, str]


def _rule(group: str, name: str, statement: str, *others: tuple[set[Way], str]) -> Rule:
    """Builds a rule that holds for all ways, except for these."""
    return Rule(
        group, name, statement, dict.fromkeys(Way, HOLDS) | {way: text for ways, text in others for way in ways}
    )


def _in_worker(test: str) -> tuple[set[Way], str]:
    return {Way.OWN}, f"{SHOWN}{test}"


def _by_scorer(test: str) -> tuple[set[Way], str]:
    return _OWN, f"{SHOWN}{test}"


_NO_FINISHED = NOT_NEEDED + "nothing is drafted from finished responses"
_NO_RESERVE = NOT_NEEDED + "drafts use the slots that vLLM itself sets aside for them"
_GUARD = NOT_NEEDED + "vLLM's drafters and heads have no guard: a fault ends the engine, as without the plugin"
_COUNTED_BY_WORKER = "tests/v1/drafting/test_drafter.py::test_each_proposer_of_a_cascade_is_counted_and_told_by_itself"
_DRAFTER_TIME = f"{SHOWN}tests/unit/worker/test_drafter_time.py::test_time_is_sent_with_the_outcome_of_a_step"
_NO_PREDICTIONS = REFUSED + "HTTP 400 where no proposer takes predictions"
_NO_GRAMMARS = REFUSED + "workers have no grammars"
_NO_TREES = REFUSED + "trees need the plugin's scorer"
_GREEDY = "test_greedy_outputs_are_those_without_speculation"
_SEEDED = "tests/engine/test_exactness.py::test_seeded_outputs_depend_neither_on_drafts_nor_on_other_requests"
_NO_DRAFTER = NOT_NEEDED + "no model drafts"
_NO_REST = NOT_NEEDED + "the plugin's proposers have nothing to compute but drafts"
_SCORER = NOT_NEEDED + "vLLM's sampler verifies, and is part of the target's step"

RULES: tuple[Rule, ...] = (
    _rule("request", "thinking_budget", "requests with `thinking_token_budget` get no drafts"),
    _rule("request", "resumable", "requests of a streaming session get no drafts"),
    _rule("request", "prompt_embeds", "requests with embeddings in the prompt get no drafts"),
    _rule("request", "pooling", "requests for pooling get no drafts"),
    _rule(
        "request",
        "grammar",
        "no sampled drafts where a grammar may cut them by their tokens; none where it refuses what follows its end",
    ),
    _rule("option", "spec", "`spec: off` switches a request's drafts off"),
    _rule("option", "spec_tokens", "`spec_tokens` bounds a request's drafts"),
    _rule("option", "spec_method", "`spec_method` names the only proposer that drafts for a request"),
    _rule("option", "spec_prediction", "predicted outputs are drafted", (_VLLM | _HEADS, _NO_PREDICTIONS)),
    _rule(
        "scheduling",
        "grammars",
        "what grammars force is drafted, and requests without structured output are left alone",
        ({Way.OWN}, _NO_GRAMMARS),
        (_VLLM | _HEADS, NOT_NEEDED + "no proposer drafts from grammars"),
    ),
    _rule(
        "scheduling",
        "continued",
        "a drafter's draft is cut where it leaves the request's grammar, and continued from there",
        ({Way.OWN}, _NO_GRAMMARS),
        ({Way.TOKEN_ONLY_V1, Way.TOKEN_ONLY}, f"{SHOWN}tests/engine/test_exactness.py::{_GREEDY}"),
        (_VLLM | _HEADS, NOT_NEEDED + "no proposer drafts from grammars"),
    ),
    _rule("scheduling", "defaults", "`requests` in plugin.yaml is used where a request has no `spec` or `spec_tokens`"),
    _rule("scheduling", "switch", "`switch` in plugin.yaml turns drafts off and on, or caps them, while requests run"),
    _rule("scheduling", "memory", "what `optimal` learned is where the next server of the same kind begins"),
    _rule("scheduling", "outputs", "outputs do not depend on draft lengths, preemption or late outcomes"),
    _rule("scheduling", "ended", "nothing is kept of requests that have ended"),
    _rule(
        "scheduling",
        "end of output",
        "no draft goes beyond a request's last output token",
        _in_worker(
            "tests/v1/drafting/test_request_views.py::test_a_chain_goes_as_far_as_context_and_max_tokens_leave_room"
        ),
        (_ASYNC, NOT_NEEDED + "vLLM drops tokens beyond the end; the outcome that would tell is not known yet"),
    ),
    _rule(
        "scheduling",
        "min_tokens",
        "no draft reaches `min_tokens`",
        (_OWN, NOT_NEEDED + "the plugin's scorer masks stop tokens position by position"),
        (_BY_VLLM - _V1_BY_VLLM, NOT_NEEDED + "V2's sampler knows each token's position"),
    ),
    _rule(
        "scheduling",
        "not running",
        "requests that are preempted or wait for a turn get no drafts",
        ({Way.OWN} | _VLLM | _HEADS, NOT_NEEDED + "the worker drafts for the requests of its step"),
    ),
    _rule(
        "scheduling",
        "left out",
        "drafts of a request that a step has no room for are dropped",
        (
            {Way.OWN},
            f"{SHOWN}tests/v1/drafting/test_drafter.py::"
            "test_q_of_a_request_that_is_not_scheduled_for_a_step_is_there_when_it_is",
        ),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, NOT_NEEDED + "drafts are certain, and stay with the scheduler"),
    ),
    _rule(
        "scheduling",
        "tenants",
        "requests with another `cache_salt` are not drafted from",
        _in_worker("tests/v1/scheduling/test_scheduler.py::test_new_requests_have_their_scope_with_their_first_step"),
        (_VLLM | _HEADS, _NO_FINISHED),
    ),
    _rule(
        "scheduling",
        "rests",
        "the drafter does not run in steps after which nobody drafts",
        ({Way.OWN}, NOT_NEEDED + "proposers are called for requests with planned drafts only"),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, _NO_DRAFTER),
    ),
    _rule(
        "drafts",
        "seeds",
        "a seeded output does not depend on drafts",
        _by_scorer(_SEEDED),
        (_BY_VLLM, f"{SHOWN}{_SEEDED}"),
        (
            {Way.VLLM_V1, Way.TOKEN_ONLY_VLLM_V1},
            NOT_NEEDED + "vLLM's V1 runner draws by request, and promises no such output",
        ),
        (_ASYNC, NOT_NEEDED + "the worker verifies as with synchronous scheduling, on each runner as above"),
    ),
    _rule("drafts", "certain", "certain drafts are verified as certain"),
    _rule(
        "drafts",
        "with q",
        "drawn drafts are verified with their q",
        ({Way.OWN}, f"{SHOWN}tests/engine/test_sampling.py::test_sampled_output_has_the_exact_distribution"),
        (_VLLM, NOT_NEEDED + "vLLM keeps its own drafter's q; a step that leaves a request out drops its drafts"),
        (_BEFORE_VLLM, REFUSED + "vLLM would verify the other proposers' certain drafts with its drafter's q"),
        ({Way.TOKEN_ONLY_HEADS} | _HEADS, REFUSED + "vLLM's sampler gets no q of the plugin's proposers"),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, NOT_NEEDED + "all drafts are certain"),
    ),
    _rule(
        "drafts",
        "trees",
        "trees are verified as trees",
        ({Way.OWN}, f"{SHOWN}tests/v1/verification/test_exactness.py"),
        (_VLLM | _BEFORE_VLLM, NOT_NEEDED + "vLLM's drafters draft chains"),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, NOT_NEEDED + "token-only proposers draft chains"),
        (_HEADS | {Way.TOKEN_ONLY_HEADS}, _NO_TREES),
    ),
    _rule(
        "drafts",
        "lossy",
        "lossy verification is never called exact",
        _by_scorer("tests/v1/test_start_up.py::test_one_line_says_what_is_served"),
        (_BY_VLLM, REFUSED + "settings that change the distribution: `lenience` below 1, vLLM's `synthetic` and `fly`"),
    ),
    _rule("counter", "drafts", "drafts are counted", _in_worker(_COUNTED_BY_WORKER)),
    _rule("counter", "draft_tokens", "draft tokens are counted", _in_worker(_COUNTED_BY_WORKER)),
    _rule(
        "counter",
        "proposer_errors",
        "faults of proposers cost drafts only, and are counted",
        _in_worker("tests/unit/proposers/test_guard.py"),
        (_VLLM | _HEADS, _GUARD),
    ),
    _rule(
        "counter",
        "proposer_seconds",
        "the time of drafting is counted",
        _in_worker(_COUNTED_BY_WORKER),
        (_VLLM | _HEADS, _DRAFTER_TIME),
    ),
    _rule(
        "counter",
        "verification_seconds",
        "the time of verification is counted",
        _by_scorer("tests/v1/test_runner.py::test_the_scorer_samples_what_only_it_can"),
        (_BY_VLLM, _SCORER),
    ),
    _rule(
        "counter",
        "tree_seconds",
        "the time of laying out trees is counted",
        _in_worker("tests/unit/metrics/test_counters.py::test_blocks_of_code_are_timed"),
        (_BY_VLLM | {Way.TOKEN_ONLY_V1}, NOT_NEEDED + "drafts are chains"),
    ),
    *(
        _rule(
            "counter",
            name,
            statement,
            _by_scorer(f"tests/v1/scheduling/test_scheduler.py::{test}"),
            (_BY_VLLM, _NO_RESERVE),
        )
        for name, statement, test in (
            ("kv_blocks_reserved", "reserved KV blocks", "test_counters_of_blocks_arrive_with_the_statistics"),
            ("kv_blocks_rolled_back", "returned KV blocks", "test_counters_of_blocks_arrive_with_the_statistics"),
            ("drafts_cut_for_memory", "drafts cut for memory", "test_drafts_are_cut_before_anybody_is_preempted"),
        )
    ),
    _rule("counter", "verified_per_position", "verified draft tokens are counted by position and proposer"),
    _rule("counter", "accepted_per_position", "accepted draft tokens are counted by position and proposer"),
    *(
        _rule(
            "counter",
            f"{outcome}_by_kind",
            f"a grammar's {outcome} draft tokens are counted by how certain they were",
            ({Way.OWN}, _NO_GRAMMARS),
            (_VLLM | _HEADS, NOT_NEEDED + "no proposer drafts from grammars"),
        )
        for outcome in ("verified", "accepted")
    ),
    _rule("counter", "ended", "acceptance of each finished request is reported"),
    _rule("counter", "chosen_lengths", "planned draft lengths are counted"),
    _rule("counter", "without_drafts", "requests without drafts are counted by reason"),
    _rule(
        "counter",
        "requests_without_salt",
        "requests without a salt that share text are counted",
        (_VLLM | _HEADS, _NO_FINISHED),
    ),
    _rule(
        "counter",
        "requests_lost",
        "requests that a head lacks hidden states for are counted",
        _in_worker("tests/engine/test_eagle3.py::test_a_fault_of_the_head_costs_drafts"),
        (
            _BY_VLLM | {Way.TOKEN_ONLY_V1},
            NOT_NEEDED + "vLLM's heads draft with what they have; Medusa heads need the last state only",
        ),
    ),
    *(
        _rule("counter", name, statement, ({Way.OWN}, _NO_REST), ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, _NO_DRAFTER))
        for name, statement in (
            ("drafter_passes", "passes of the drafter are counted"),
            ("drafter_rests", "steps in which the drafter rests are counted"),
        )
    ),
    _rule(
        "counter",
        "stale_requests",
        "requests that lack the drafter's keys and values are counted",
        ({Way.OWN}, _NO_REST),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, _NO_DRAFTER),
        (_HEADS | {Way.TOKEN_ONLY_HEADS}, NOT_NEEDED + "Medusa heads need the last state only"),
    ),
    _rule(
        "counter",
        "caught_up_tokens",
        "tokens that a draft model computes after a rest are counted",
        ({Way.OWN}, NOT_NEEDED + "they are part of the time of drafting"),
        ({Way.TOKEN_ONLY, Way.TOKEN_ONLY_V1}, _NO_DRAFTER),
        (_HEADS | {Way.TOKEN_ONLY_HEADS}, NOT_NEEDED + "Medusa heads need the last state only"),
    ),
    _rule("counter", "switched_off", "requests whose drafts are switched off are counted"),
    _rule("counter", "predicted_seconds", "forecast step times are counted"),
    _rule("counter", "measured_seconds", "measured step times are counted"),
    _rule("counter", "expected_saved_seconds", "time expected to be saved is counted"),
    _rule("counter", "realised_saved_seconds", "time saved is counted"),
    _rule("counter", "acceptance", "estimates of acceptance are reported"),
    _rule("counter", "max_draft_tokens", "the limit of `switch` is reported"),
)


@cache
def alerts() -> dict[str, tuple[str, ...]]:
    """Returns the counters of the plugin that each alert of deploy/prometheus is about."""
    groups = yaml.safe_load(_ALERTS.read_text())["groups"]
    found = {}
    for alert in (alert for group in groups for alert in group["rules"]):
        names = re.findall(r"vllm_spec_plugin:(\w+)", alert["expr"])
        found[alert["alert"]] = tuple(dict.fromkeys(_counter_of(name) for name in names))
    return found


def _counter_of(metric: str) -> str:
    name = metric.removesuffix("_total")
    return {"measured_step_seconds": "measured_seconds", "acceptance_drift": "ended"}.get(name, name)


def names_in_code() -> dict[str, set[str]]:
    """Returns the code's own lists of rules, by group."""
    return {
        "request": set(WITHOUT_DRAFTS),
        "option": set(request_options.NAMES),
        "counter": {field.name for field in fields(StepCounters)} - {"method"},
    }


def answer_of_alert(alert: str, way: Way) -> str:
    """Returns the answer of an alert: the first one of its counters that does not hold, or that it holds."""
    answers = {rule.name: rule.answers[way] for rule in RULES if rule.group == "counter"}
    reasons = [answers[counter] for counter in alerts()[alert]]
    return next((text for text in reasons if text.startswith(NOT_NEEDED)), HOLDS)
