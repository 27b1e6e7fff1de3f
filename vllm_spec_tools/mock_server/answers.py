"""Plays a planned response: what is sent, piece by piece, when its time has come."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from vllm_spec_tools.mock_server.counters import MockCounters
from vllm_spec_tools.mock_server.options import MockOptions
from vllm_spec_tools.mock_server.plan import Failure, Plan
from vllm_spec_tools.mock_server.requests import Generation
from vllm_spec_tools.mock_server.text import detokenize
from vllm_spec_tools.mock_server.wire import Json, Wire, error_body, usage

FAILURE_MESSAGE = "planned failure of the mock server (--error-rate)"
FINISH_REASON = "length"
# A piece that is not bytes: the connection ends here.
CUT = None
Piece = bytes | None


class MockEngine:
    """What runs requests: counters, and a limit of `max_running` requests."""

    def __init__(self, options: MockOptions) -> None:
        self.counters = MockCounters(options.model)
        limit = options.max_running
        self.slots: AbstractAsyncContextManager[None] = asyncio.Semaphore(limit) if limit else nullcontext()


async def streamed(
    request: Generation, tokens: tuple[int, ...], plan: Plan, wire: Wire, engine: MockEngine
) -> AsyncGenerator[Piece]:
    """The server-sent events of a response.

    Args:
        tokens: of the whole output.

    Yields:
        Whole events, in vLLM's order; `CUT` last if the plan says so.
    """
    prompt = request.prompt if request.return_token_ids else None

    def event(body: Json, done: int, *, has_usage: bool) -> bytes:
        return sse(body | {"usage": usage(len(request.prompt), done)} if has_usage else body)

    done = 0
    # Left at once when the client goes away: the request no longer runs then.
    async with aclosing(_played(request, plan, engine)) as steps:
        async for size in steps:
            if done == 0 and (opening := wire.opening(prompt)) is not None:
                yield event(opening, 0, has_usage=request.continuous_usage)
            part = tokens[done : done + size]
            finish_reason = FINISH_REASON if done + size == len(tokens) and plan.failure is None else None
            told = part if request.return_token_ids else None
            body = wire.delta(detokenize(part), prompt if done == 0 else None, told, finish_reason)
            done += size
            yield event(body, done, has_usage=request.continuous_usage)
    if plan.failure is Failure.CUT:
        yield CUT
        return
    if plan.failure is Failure.ERROR_EVENT:
        yield sse(failure_body())
    elif request.include_usage:
        yield event(wire.trailer(), done, has_usage=True)
    yield b"data: [DONE]\n\n"


async def whole(
    request: Generation, tokens: tuple[int, ...], plan: Plan, wire: Wire, engine: MockEngine
) -> AsyncGenerator[Piece]:
    """The body of a response that is not streamed, when it is complete. Arguments as in `streamed`.

    Yields:
        The body, or half of it and `CUT`. Where the plan has an error event, an error's body: its HTTP status is 500.
    """
    async for _ in _played(request, plan, engine):
        pass
    if plan.failure is Failure.ERROR_EVENT:
        yield json.dumps(failure_body()).encode()
        return
    asked = request.return_token_ids
    body = wire.whole(detokenize(tokens), request.prompt if asked else None, tokens if asked else None, FINISH_REASON)
    raw = json.dumps(body | {"usage": usage(len(request.prompt), len(tokens))}, ensure_ascii=False).encode()
    if plan.failure is Failure.CUT:
        yield raw[: len(raw) // 2]
        yield CUT
        return
    yield raw


def sse(body: Json) -> bytes:
    """A server-sent event; characters are written as they are, like vLLM does."""
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def failure_body() -> Json:
    """Returns the error of a request that fails by plan."""
    return error_body(FAILURE_MESSAGE, "InternalServerError", 500)


async def _played(request: Generation, plan: Plan, engine: MockEngine) -> AsyncGenerator[int]:
    """Yields each step's number of tokens at its time; counts them, also if the client goes away."""
    clock = asyncio.get_running_loop().time
    counted = engine.counters.arrive(len(request.prompt), clock())
    finish_reason = None
    try:
        async with engine.slots:
            begun = clock()
            counted.run(begun)
            for step in plan.steps:
                # By the clock, so that late steps do not make later ones late.
                await asyncio.sleep(max(begun + step.at - clock(), 0))
                counted.step(clock(), step.num_tokens, step.num_drafts)
                if plan.failure is None and step is plan.steps[-1]:
                    finish_reason = FINISH_REASON
                yield step.num_tokens
            if plan.failure is not None:
                await asyncio.sleep(max(begun + plan.fails_at - clock(), 0))
    finally:
        counted.end(clock(), finish_reason)
