"""Outputs are those without drafts: requests of all kinds, on one engine for each way to draft.

In all engines draft lengths and the order of proposers are random, prompts are computed in chunks, beginnings come from
the prefix cache, and requests are preempted. Engines whose KV blocks the plugin manages check these in each step.
"""

import dataclasses
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, EAGLE3, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.faults import REASONS
from tests.engine.greedy import assert_same_outputs, assert_same_tokens, greedy_job, is_same
from tests.engine.jobs import CertifyRequest, Job, JobResult, Session
from tests.engine.kinds import all_kinds, greedy_answers, off, run_plain, seeded
from tests.engine.samples import tree_sizes
from tests.engine.storm import Outcome, Storm
from tests.engine.ways import END, GRAMMARS, START, WAYS, on_v1, settings, way, without_speculation
from tests.sizes import examples, is_full
from vllm_spec_plugin.gate.scopes import OWN

pytestmark = pytest.mark.engine

ON_V1 = [name for name, engine in WAYS.items() if engine.runner == "v1"]
# Of chains, trees, and vLLM's drafters after texts.
FEW = ON_V1 if is_full() else ["cascade", "medusa_tree_drawn", "texts, vLLM's eagle3"]
SHORT_OF_MEMORY = ("kv_blocks_reserved", "kv_blocks_rolled_back", "drafts_cut_for_memory")
WITHOUT_DRAFTS = "vllm_spec_plugin:requests_without_drafts_total{reason=thinking_budget}"
NUM_REQUESTS = examples(150, 2000)
# Unit tests of drafts have the others, too.
FAULTS = REASONS if is_full() else ("raise", "nan_probs", "too_few_drafts")


def is_own(engine: Engine) -> bool:
    """Whether the plugin verifies, and manages the KV blocks."""
    return way(engine) in OWN.ways


def assert_sound(result: JobResult) -> None:
    """No proposer had a fault."""
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)


@pytest.mark.parametrize("name", WAYS)
def test_greedy_outputs_are_those_without_speculation(name: str, arms: Arms, reference: Reference) -> None:
    engine = WAYS[name]
    requests = all_kinds(arms, reference, engine)
    result, plain = arms.run(engine, Job(requests)), run_plain(arms, engine, requests)
    assert_same_outputs(reference, requests, result, plain)
    assert_sound(result)
    assert min(result.accepted, result.rejected) > len(requests) / 2
    methods = [proposer.method for proposer in settings(engine).proposers]
    assert len(methods) == 1 or min(map(result.verified_of, methods)) > 10
    if engine.runner == "v1":
        assert result.metrics["vllm:prefix_cache_hits"] > 0
        assert result.preemptions > 0
    if is_own(engine) and name != "texts":
        assert min(result.metrics[f"vllm_spec_plugin:{counter}_total"] for counter in SHORT_OF_MEMORY) > 0
    if name == "medusa_tree_drawn":
        sizes = tree_sizes(result)
        assert len(sizes) >= 4
        assert {0, 1, 2} <= set.union(*sizes.values())


@pytest.mark.parametrize("name", WAYS)
def test_seeded_outputs_depend_neither_on_drafts_nor_on_other_requests(
    name: str, arms: Arms, reference: Reference
) -> None:
    """Compares them, among requests without a seed, with those without drafts where the plugin verifies, and on V2.

    vLLM's V1 runner draws by request: there they are the same where no request has drafts, and prompts are in chunks.
    """
    engine = WAYS[name]
    is_v2 = engine.runner != "v1"
    requests = seeded(all_kinds(arms, reference, engine)[:: 1 if is_full() or is_v2 else 3], truncates=not is_v2)
    if way(engine).endswith("V1") and not is_own(engine):
        # The engine without the plugin raises for a seed and a prompt in chunks: it has room for all prompts.
        requests = [each for each in requests if len(each.prompt) < 120][:12]
        result, plain = arms.run(engine, Job(off(requests))), run_plain(arms, engine, requests)
        assert result.accepted + result.rejected == 0
        assert_same_outputs(reference, requests, result, plain)
        return
    others = [CertifyRequest(each.prompt, {"temperature": 1.0, "max_tokens": 9}) for each in requests[::3]]
    result = arms.run(engine, Job([*others, *requests], torch_seed=5))
    result.outputs, result.prompt_logprobs = result.outputs[len(others) :], result.prompt_logprobs[len(others) :]
    plain = arms.run(engine, Job(off(requests))) if is_own(engine) else run_plain(arms, engine, requests)
    assert plain.accepted + plain.rejected == 0
    assert_same_outputs(reference, requests, result, plain)
    assert_sound(result)
    assert min(result.accepted, result.rejected) > len(requests) / 4


STOPPED = {name: WAYS[name] for name in ("medusa_tree_drawn", "vLLM's draft_model")}
if is_full():
    STOPPED |= {"draft_model": on_v1(DRAFT_MODEL), "eagle3": on_v1(EAGLE3)}


@pytest.mark.parametrize("name", STOPPED)
def test_what_follows_a_stop_is_gone(name: str, arms: Arms, reference: Reference) -> None:
    """Stops at tokens and strings all over the answers; later requests go on from these texts in the prefix cache."""
    # With drafts in every step, so that it is known how many tokens were accepted after a stop.
    engine = dataclasses.replace(STOPPED[name], random_lengths=False)
    prompts, requests = texts.repetitive(reference), []
    for prompt, answer in zip(prompts, greedy_answers(arms, engine, prompts), strict=True):
        for i in range(2, 46, 1 if is_full() else 3):
            params = {"temperature": 0.0, "max_tokens": 64}
            requests.append(CertifyRequest(prompt, params | {"stop_token_ids": [answer[i]]}))
            # Begins and ends within tokens.
            text = reference.tokenizer.decode(answer[i : i + 3])
            requests.append(CertifyRequest(prompt, params | {"stop": [text[1:-1] or text]}))
    result, plain = arms.run(engine, Job(requests)), run_plain(arms, engine, requests)
    assert_same_outputs(reference, requests, result, plain)
    steps = result.accepted + result.metrics["vllm:spec_decode_num_drafts"] + len(requests)
    assert steps > sum(map(len, plain.tokens())) + 20, "hardly any stop is inside accepted drafts"
    params = {"temperature": 0.0, "max_tokens": 4, "ignore_eos": True, "logprobs": 1}
    later = [
        CertifyRequest((*each.prompt, *tokens, *each.prompt[:40]), params)
        for each, tokens in zip(requests, plain.tokens(), strict=True)
    ][::-1]
    result, plain = arms.run(engine, Job(later)), run_plain(arms, engine, later)
    assert result.metrics["vllm:prefix_cache_hits"] > len(later) * min(map(len, prompts)) // 2
    assert_same_outputs(reference, later, result, plain)


@pytest.mark.parametrize("name", FEW)
def test_no_request_is_lost_in_a_storm(name: str, arms: Arms, reference: Reference) -> None:
    """A third is aborted; outputs of the others, and what the aborted ones had, are as without."""
    engine = WAYS[name]
    every = all_kinds(arms, reference, engine)
    plain = run_plain(arms, engine, every).tokens()
    places = [i for i, each in enumerate(every) if len(each.prompt) < engine.max_model_len / 2]
    requests = [every[i] for i in places]
    result = arms.run(engine, Job([], storm=Storm(requests, NUM_REQUESTS)))
    outcomes: list[Outcome] = result.notes["storm"]
    ends = [outcome.end for outcome in outcomes]
    assert set(ends) == {"finished", "aborted"}
    assert len(ends) == NUM_REQUESTS
    assert ends.count("aborted") > 0.2 * NUM_REQUESTS
    for outcome in outcomes:
        expected = plain[places[outcome.request]]
        if outcome.end != "finished":
            expected = expected[: len(outcome.token_ids)]
        assert is_same(reference, requests[outcome.request], outcome.token_ids, expected), outcome
    assert min(result.accepted, result.rejected) > NUM_REQUESTS / 3
    assert result.preemptions > NUM_REQUESTS / 25


# vLLM takes up neither a session nor a budget where it was when the request was preempted.
_ROOM: dict[str, Any] = {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "num_blocks": 1536}
ROOMY = {name: dataclasses.replace(WAYS[name], **_ROOM) for name in ("texts", "vLLM's draft_model")}


@pytest.mark.parametrize("name", ROOMY)
def test_thinking_budgets_are_kept_among_requests_that_have_drafts(name: str, arms: Arms, reference: Reference) -> None:
    """Every prompt with a budget of 0 to 11 tokens and without one; the end is forced on the right ones."""
    engine, start = ROOMY[name], tuple(reference.encode(START))
    prompts = [*texts.repetitive(reference), *texts.sources(reference, 20, 200)]
    params = {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True}
    # Half of them end in the middle of thinking.
    requests = [
        CertifyRequest(prompt + start * (i % 2), params | more)
        for i, prompt in enumerate(prompts)
        for more in ({"thinking_token_budget": i % 12}, {})
    ]
    result, plain = arms.run(engine, Job(requests)), run_plain(arms, engine, requests)
    forced = [END in outputs[0].text for outputs in plain.outputs]
    assert (sum(forced[::2]) > 15, sum(forced[1::2])) == (True, 0)
    assert_same_outputs(reference, requests, result, plain)
    assert result.metrics[WITHOUT_DRAFTS] == len(prompts)
    assert result.accepted > 100


@pytest.mark.parametrize("name", ROOMY)
def test_sessions_go_on_from_where_a_turn_stopped(name: str, arms: Arms, reference: Reference) -> None:
    """Turns stop at every token that the answer has, in the middle of what would have been accepted drafts.

    What follows in the session is right, and so is what the prefix cache gives others.
    """
    engine = ROOMY[name]
    prompts = [*texts.repetitive(reference), *texts.sources(reference, 12, 200)]
    sessions = []
    for prompt, answer in zip(prompts, greedy_answers(arms, engine, prompts), strict=True):
        for stop in sorted(set(answer[2:24]))[:6]:
            params = {"temperature": 0.0, "max_tokens": 24, "stop_token_ids": [stop]}
            sessions.append(Session([prompt, prompt[-60:], prompt[-40:]], params))
    plain = without_speculation(engine)
    said, result = (arms.run(each, Job([], sessions=sessions)).notes["sessions"] for each in (plain, engine))
    assert sum(len(answer) < 24 for answers in said for answer in answers) > len(sessions)
    assert result == said
    # A turn keeps its answer but for the last token.
    later = [
        tuple(token for turn, answer in zip(one.turns, answers, strict=True) for token in (*turn, *answer[:-1]))
        for one, answers in zip(sessions, said, strict=True)
    ]
    again, expected = (arms.run(each, greedy_job(later, 8)) for each in (engine, plain))
    assert_same_tokens(reference, later, again, expected)


def errors(result: JobResult) -> dict[str, float]:
    """Faults of proposers by reason."""
    name = "vllm_spec_plugin:proposer_errors_total{reason="
    return {key.removeprefix(name).rstrip("}"): n for key, n in result.metrics.items() if key.startswith(name) and n}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_every_other_step_costs_drafts_only_and_is_counted(
    fault: str, arms: Arms, reference: Reference
) -> None:
    """Requests finish with their outputs, greedy and seeded; other steps draft on."""
    engine, prompts = WAYS["cascade"], texts.sources(reference, 24, 300)
    greedy = greedy_job(prompts, 32).requests
    for requests in (greedy, seeded(greedy)):
        result, plain = (
            arms.run(engine, Job(each, fault=name)) for each, name in ((requests, fault), (off(requests), ""))
        )
        assert_same_outputs(reference, requests, result, plain)
        assert set(errors(result)) == {REASONS[fault]}
        assert errors(result)[REASONS[fault]] > 10
        assert result.accepted > 20


def test_grammars_alone_draft_much_of_structured_outputs_and_nothing_else(arms: Arms, reference: Reference) -> None:
    every: list[CertifyRequest] = all_kinds(arms, reference, GRAMMARS)
    structured, free = ([r for r in every if ("structured_outputs" in r.params) == has] for has in (True, False))
    result = arms.run(GRAMMARS, Job(structured))
    assert_same_outputs(reference, structured, result, run_plain(arms, GRAMMARS, structured))
    assert result.accepted > 0.3 * sum(map(len, result.tokens()))
    none: dict[str, Any] = arms.run(GRAMMARS, Job(free[:20])).metrics
    assert not none["vllm:spec_decode_num_draft_tokens"]
