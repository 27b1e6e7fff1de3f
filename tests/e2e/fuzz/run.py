"""Sends drawn requests to a server, with drafts and without, and finds what should not be."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import openai

from tests.e2e.fuzz.answers import Answer, differences, send
from tests.e2e.fuzz.cases import Case
from tests.engine.exact import Reference
from vllm_spec_tools.certify.greedy import TOLERANCES
from vllm_spec_tools.certify.target_probabilities import adjusted
from vllm_spec_tools.engines.serving import Server

AT_ONCE = 12
_IDLE_S = 30
_OUTLIVES_S = 600


@dataclass
class Outcome:
    """Results of a server's requests.

    Attributes:
        counts: numbers of requests, by result.
        faults: what should not be, in words.
        unrepeated: differences that were gone when the request was sent again, where ties cannot be told otherwise.
        reasons: of the faults of proposers that were counted.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    unrepeated: list[str] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)


async def fuzz(server: Server, model: str, cases: Sequence[Case], reference: Reference, *, same_seeds: bool) -> Outcome:
    """Sends each case with drafts and without, many at once, then looks at the server.

    Args:
        server: a running server.
        model: name of its model.
        cases: the requests.
        reference: the target.
        same_seeds: whether a seeded request has the same outputs with drafts and without.
    """
    outcome, gate = Outcome(), asyncio.Semaphore(AT_ONCE)
    async with openai.AsyncOpenAI(
        base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=_OUTLIVES_S
    ) as client:

        async def pair(case: Case) -> tuple[Answer, Answer]:
            bodies = case.with_drafts, case.without_drafts
            found, expected = await asyncio.gather(*(send(client, model, case, body) for body in bodies))
            return found, expected

        async def problem_of(case: Case, counts: Counter[str]) -> str:
            async with gate:
                try:
                    answers = await pair(case)
                except (openai.APIError, httpx.HTTPError) as error:
                    return repr(error)
            return _judge(counts, case, *answers, reference, same_seeds=same_seeds)

        async def try_out(case: Case) -> None:
            if not (problem := await problem_of(case, outcome.counts)):
                return
            # Of others it is not known whether two tokens tie.
            is_plain = case.is_greedy and case.endpoint != "responses" and "use_beam_search" not in case.body
            is_gone = not is_plain and not await problem_of(case, Counter())
            (outcome.unrepeated if is_gone else outcome.faults).append(f"{_shown(case)}: {problem}")
            print(f"{'gone when sent again' if is_gone else 'fault'}: {_shown(case)}: {problem}", flush=True)

        await asyncio.gather(*map(try_out, cases))
    outcome.faults += _left_behind(server)
    return outcome


def _judge(
    counts: Counter[str], case: Case, found: Answer, expected: Answer, reference: Reference, *, same_seeds: bool
) -> str:
    """Counts a pair of answers; returns what is wrong with it, or nothing."""
    if 0 in (found.status, expected.status):
        counts["left"] += 1
        return ""
    if found.status == 400:
        counts["refused"] += 1
        own = "vllm_xargs" in found.message or "prediction" in found.message
        return "" if found.message and (own or expected.status == 400) else f"refused with drafts only: {found.message}"
    if expected.status != 200:
        return f"refused without drafts only: {expected.message}"
    counts["served"] += 1
    if problem := _broken(case, found):
        return problem
    if not (case.is_greedy or (same_seeds and case.is_seeded)):
        counts["sampled"] += 1
        return ""
    counts["greedy" if case.is_greedy else "seeded"] += 1
    if _tied(case, found, expected, reference):
        counts["tied"] += 1
        return ""
    return "; ".join(list(differences(found.choices, expected.choices))[:3])


def _broken(case: Case, answer: Answer) -> str:
    """Says what an answer must not be, whatever was sampled."""
    most = case.body.get("max_completion_tokens", case.body.get("max_tokens", 0))
    for tokens in filter(None, answer.token_ids):
        if len(tokens) > most:
            return f"{len(tokens)} tokens"
        # vLLM's beam search has no such limit.
        limit = {} if "use_beam_search" in case.body else case.body
        allowed = set(limit.get("allowed_token_ids", tokens))
        # Where only stop tokens are allowed, and held back, any token is as good.
        num_free = limit.get("min_tokens", 0) if allowed <= set(limit.get("stop_token_ids", ())) else 0
        if not set(tokens[num_free:]) <= allowed:
            return "a token that is not allowed"
    if case.endpoint != "responses" and len(answer.choices) != case.body.get("n", 1):
        return f"{len(answer.choices)} choices"
    return ""


def _tied(case: Case, found: Answer, expected: Answer, reference: Reference) -> bool:
    """Whether two greedy outputs differ first where the logits of their tokens there differ by rounding only."""
    if not case.is_greedy or not found.prompt:
        return False
    pairs = zip(found.token_ids[0] or (), expected.token_ids[0] or (), strict=False)
    position = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if position is None or found.token_ids[0] is None or expected.token_ids[0] is None:
        return False
    prefix, prompt = tuple(found.token_ids[0][:position]), tuple(found.prompt)
    params = case.body | {"temperature": 1.0}
    params["logit_bias"] = {int(token): bias for token, bias in case.body.get("logit_bias", {}).items()}
    [row] = adjusted(reference.logits([*prompt, *prefix])[-1:], prompt, [prefix], params)
    return bool(abs(row[found.token_ids[0][position]] - row[expected.token_ids[0][position]]) < TOLERANCES["float32"])


def _left_behind(server: Server) -> list[str]:
    """Returns what is wrong with a server once all its requests have ended; aborted ones may take a moment."""
    deadline = time.monotonic() + _IDLE_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            status = httpx.get(f"{server.base_url}/health", trust_env=False).status_code
            metrics = server.metrics()
            busy = {
                name: metrics[f"vllm:{name}"]
                for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
            }
            if status == 200 and not any(busy.values()):
                return []
            if time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            return [f"health {status}, {busy}"]
        return ["the server does not answer"]


def _shown(case: Case) -> str:
    long = ("prompt", "messages", "input", "instructions", "prediction", "tools")
    return f"{case.endpoint} {json.dumps({k: v for k, v in case.with_drafts.items() if k not in long})[:900]}"
