"""Requests that are served without drafts, among others that have some."""

import pytest

from tests.engine import texts
from tests.engine.arms import LOOKUP, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job, Session
from tests.engine.test_native import DRAFTERS, after_texts, vllms
from tests.fixed_length import STOCK_DRAFT_MODEL
from tests.sizes import is_full

pytestmark = pytest.mark.engine

# What the model writes all the time; the end takes several tokens.
START, END = "(", ") # end\n"
REASONING = (("reasoning_config", (("reasoning_start_str", START), ("reasoning_end_str", END))),)
PLAIN = Engine(options=REASONING)
# Own proposers, vLLM's drafter, and in the full run both in a cascade.
DRAFTED = {"own": LOOKUP, "vllm": DRAFTERS["draft_model"]}
if is_full():
    DRAFTED["token-only, vllm"] = after_texts(vllms(STOCK_DRAFT_MODEL))
drafted = pytest.mark.parametrize("config", DRAFTED.values(), ids=DRAFTED)
WITHOUT_DRAFTS = "vllm_spec_plugin:requests_without_drafts_total{{reason={}}}"


def with_drafts(config: str) -> Engine:
    return Engine(config=config, options=REASONING)


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    """Half of them end in the middle of thinking."""
    prompts = [*texts.repetitive(reference), *texts.sources(reference, 20, 200)]
    start = tuple(reference.encode(START))
    return [prompt + start * (i % 2) for i, prompt in enumerate(prompts)]


@drafted
def test_thinking_budgets_are_kept_among_requests_that_have_drafts(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Every prompt with a budget of 0 to 11 tokens and without one; the end is forced on the right ones."""
    budgets = [budget for i in range(len(prompts)) for budget in (i % 12, None)]
    params = {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True}
    requests = [
        CertifyRequest(prompts[i // 2], params if budget is None else params | {"thinking_token_budget": budget})
        for i, budget in enumerate(budgets)
    ]
    plain, result = (arms.run(engine, Job(requests)) for engine in (PLAIN, with_drafts(config)))
    forced = [END in outputs[0].text for outputs in plain.outputs]
    assert sum(forced[::2]) > 15
    assert sum(forced[1::2]) == 0
    assert_same_tokens(reference, [request.prompt for request in requests], result, plain)
    assert result.metrics[WITHOUT_DRAFTS.format("thinking_budget")] == len(prompts)
    assert result.accepted > 100


@pytest.mark.full  # Among others they are kept above.
@drafted
def test_alone_thinking_budgets_are_kept(config: str, arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    """In a server that speculates no step of this batch has a draft."""
    params = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
    requests = [CertifyRequest(prompt, params | {"thinking_token_budget": i % 5}) for i, prompt in enumerate(prompts)]
    requests[::4] = [
        CertifyRequest(request.prompt, params | {"extra_args": {"spec": "off"}}) for request in requests[::4]
    ]
    plain, result = (arms.run(engine, Job(requests)) for engine in (PLAIN, with_drafts(config)))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.accepted + result.rejected == 0


@drafted
def test_sessions_go_on_from_where_a_turn_stopped(
    config: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Turns stop at every token that the answer has, in the middle of what would have been accepted drafts.

    What follows in the session is right, and so is what the prefix cache gives others.
    """
    sessions = []
    for prompt, answer in zip(prompts, arms.run(PLAIN, greedy_job(prompts, 24)).tokens(), strict=True):
        for stop in sorted(set(answer[2:]))[:6]:
            params = {"temperature": 0.0, "max_tokens": 24, "stop_token_ids": [stop]}
            sessions.append(Session([prompt, prompt[-60:], prompt[-40:]], params))
    said, result = (
        arms.run(engine, Job([], sessions=sessions)).notes["sessions"] for engine in (PLAIN, with_drafts(config))
    )
    assert sum(len(answer) < 24 for answers in said for answer in answers) > len(sessions)
    assert result == said
    # A turn keeps its answer but for the last token.
    later = [
        tuple(token for turn, answer in zip(one.turns, answers, strict=True) for token in (*turn, *answer[:-1]))
        for one, answers in zip(sessions, said, strict=True)
    ]
    again, expected = (arms.run(engine, greedy_job(later, 8)) for engine in (with_drafts(config), PLAIN))
    assert_same_tokens(reference, later, again, expected)
