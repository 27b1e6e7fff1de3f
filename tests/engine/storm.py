"""A crowd of requests that come, go and are aborted at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.engine.jobs import CertifyRequest, Tokens

MOST_AT_ONCE = 40
STEPS_BETWEEN_CHECKS = 50
# Share of steps before which the prefix cache is reset and all requests are preempted, as when vLLM pauses or sleeps.
RESETS = 0.01
OPTIONS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"spec": "off"}, {"spec_tokens": 2})


@dataclass(frozen=True)
class Storm:
    """Requests to send: each is one of `requests`, some with other draft lengths."""

    requests: list[CertifyRequest]
    num_requests: int  # A third of them is aborted.
    seed: int = 0  # Decides what comes when.


@dataclass
class Outcome:
    """Result of a request."""

    request: int  # Which one it was.
    token_ids: Sequence[int] = ()  # Its output as it was last seen.
    end: str = ""  # "finished", "aborted", or empty where it was lost.


def run(llm: Any, storm: Storm) -> list[Outcome]:
    """Sends the requests, and steps the engine until it has none left; its KV blocks must add up all the time.

    Args:
        llm: vLLM's `LLM`, whose scheduler is in this process and the plugin's.
        storm: what is sent.

    Returns:
        Results per request.
    """
    engine = llm.llm_engine
    scheduler = engine.engine_core.engine_core.scheduler
    # With vLLM's own drafters the KV cache manager is vLLM's.
    check = getattr(scheduler, "check_integrity", lambda: None)
    rng = random.Random(storm.seed)
    outcomes: list[Outcome] = []
    # Those in the engine; of those to be aborted the step in which that is done.
    at_work: dict[str, Outcome] = {}
    aborts: dict[str, int] = {}
    step = 0
    while len(outcomes) < storm.num_requests or at_work:
        while len(outcomes) < storm.num_requests and len(at_work) < MOST_AT_ONCE and rng.random() < 0.8:
            name, outcome = str(len(outcomes)), Outcome(rng.randrange(len(storm.requests)))
            request = storm.requests[outcome.request]
            outcomes.append(outcome)
            more = rng.choice(OPTIONS)
            _add(engine, name, request.prompt, {**request.params, "extra_args": more} if more else request.params)
            at_work[name] = outcome
            if rng.random() < 1 / 3:
                aborts[name] = step + int(rng.expovariate(1 / 20))
        for name in [name for name, when in aborts.items() if when <= step]:
            del aborts[name]
            if name in at_work:
                engine.abort_request([name])
                at_work.pop(name).end = "aborted"
        if rng.random() < RESETS:
            assert scheduler.reset_prefix_cache(reset_running_requests=True)
        for output in engine.step():
            # An output may be on its way when its request is aborted.
            if output.request_id in at_work:
                at_work[output.request_id].token_ids = list(output.outputs[0].token_ids)
                if output.finished:
                    at_work.pop(output.request_id).end = "finished"
        step += 1
        if not step % STEPS_BETWEEN_CHECKS:
            check()
        if at_work and not engine.has_unfinished_requests():
            break
    engine.step()
    check()
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not engine.has_unfinished_requests()
    return outcomes


def _add(engine: Any, name: str, prompt: Tokens, params: dict[str, Any]) -> None:
    from vllm_spec_tools.engines.engine_process import _sampling_params

    engine.add_request(name, {"prompt_token_ids": list(prompt)}, _sampling_params(params))
