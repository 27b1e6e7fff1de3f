"""The web side of the mock server. Imported when it starts, for FastAPI takes its time."""

import asyncio
import dataclasses
import itertools
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from vllm_spec_tools.mock_server.api import (
    ApiRequest,
    ChatRequest,
    CompletionRequest,
    Json,
    Tokens,
    Wire,
    continuation,
    detokenize,
    error_body,
    usage,
)
from vllm_spec_tools.mock_server.chunk_plan import Failure, ResponsePlan, plan_response
from vllm_spec_tools.mock_server.counters import MockCounters
from vllm_spec_tools.mock_server.options import MAX_MODEL_LEN, MockOptions

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_FINISH_REASON = "length"
_FAILURE = error_body("planned failure of the mock server (--error-rate)", "InternalServerError", 500)
# A piece that is not bytes: the connection ends here.
_CUT = None
Piece = bytes | None


class _Pieces(StreamingResponse):
    """A response whose pieces come in time, and which may break off."""

    def __init__(self, pieces: AsyncGenerator[Piece], *, is_stream: bool, status: int = 200) -> None:
        super().__init__((), status, media_type="text/event-stream" if is_stream else "application/json")
        self._pieces = pieces
        self._is_stream = is_stream

    async def stream_response(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        # A stream's head leaves at once, another response's with its body, as from vLLM.
        is_begun = self._is_stream
        if is_begun:
            await send(start)
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if not is_begun:
                    is_begun = True
                    await send(start)
                if piece is _CUT:
                    # uvicorn closes the connection of a response that was not ended.
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Engine:
    """Runs requests by their plans: up to `max_running` at once, counted."""

    def __init__(self, options: MockOptions) -> None:
        self.counters = MockCounters(options.model)
        self._slots = asyncio.Semaphore(options.max_running) if options.max_running else nullcontext()

    async def streamed(
        self, request: ApiRequest, output: Tokens, plan: ResponsePlan, wire: Wire
    ) -> AsyncGenerator[Piece]:
        """Yields whole server-sent events, in vLLM's order; `_CUT` last if the plan says so."""
        prompt = request.tokens if request.return_token_ids else None

        def event(body: Json, done: int, *, has_usage: bool) -> bytes:
            return _sse(body | {"usage": usage(len(request.tokens), done)} if has_usage else body)

        done = 0
        # Left at once when the client goes away: the request no longer runs then.
        async with aclosing(self._steps(request, plan)) as steps:
            async for size in steps:
                if done == 0 and (opening := wire.opening(prompt)) is not None:
                    yield event(opening, 0, has_usage=request.continuous_usage)
                part = output[done : done + size]
                reason = _FINISH_REASON if done + size == len(output) and plan.failure is None else None
                told = part if request.return_token_ids else None
                body = wire.text(detokenize(part), prompt if done == 0 else None, told, reason)
                done += size
                yield event(body, done, has_usage=request.continuous_usage)
        if plan.failure is Failure.CUT:
            yield _CUT
            return
        if plan.failure is Failure.ERROR_EVENT:
            yield _sse(_FAILURE)
        elif request.include_usage:
            yield event(wire.body(), done, has_usage=True)
        yield b"data: [DONE]\n\n"

    async def whole(self, request: ApiRequest, output: Tokens, plan: ResponsePlan, wire: Wire) -> AsyncGenerator[Piece]:
        """Yields the body of a response that is not streamed, or half of it and `_CUT`.

        Where the plan has an error event, it is an error's body: its HTTP status is 500.
        """
        async for _ in self._steps(request, plan):
            pass
        if plan.failure is Failure.ERROR_EVENT:
            yield json.dumps(_FAILURE).encode()
            return
        prompt, told = (request.tokens, output) if request.return_token_ids else (None, None)
        body = wire.text(detokenize(output), prompt, told, _FINISH_REASON, is_whole=True)
        raw = json.dumps(body | {"usage": usage(len(request.tokens), len(output))}, ensure_ascii=False).encode()
        if plan.failure is Failure.CUT:
            yield raw[: len(raw) // 2]
            yield _CUT
            return
        yield raw

    async def _steps(self, request: ApiRequest, plan: ResponsePlan) -> AsyncGenerator[int]:
        """Yields each step's number of tokens at its time; counts them, also if the client goes away."""
        clock = asyncio.get_running_loop().time
        counted = self.counters.arrive(len(request.tokens), clock())
        finish_reason = None
        try:
            async with self._slots:
                begun = clock()
                counted.run(begun)
                for step in plan.steps:
                    # By the clock, so that late steps do not make later ones late.
                    await asyncio.sleep(max(begun + step.at - clock(), 0))
                    counted.step(clock(), step.num_tokens, step.num_drafts)
                    if plan.failure is None and step is plan.steps[-1]:
                        finish_reason = _FINISH_REASON
                    yield step.num_tokens
                if plan.failure is not None:
                    await asyncio.sleep(max(begun + plan.fails_at - clock(), 0))
        finally:
            counted.end(clock(), finish_reason)


def _sse(body: Json) -> bytes:
    """A server-sent event; characters are written as they are, like vLLM does."""
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def create_app(options: MockOptions) -> FastAPI:
    """The application, with counters of its own."""
    app = FastAPI(openapi_url=None)
    engine = _Engine(options)
    counters = engine.counters
    greedy = dataclasses.replace(options, tokens_per_chunk=1.0)
    numbers = itertools.count()
    started = int(time.time())

    def respond(request: ApiRequest, *, is_chat: bool) -> Response:
        if (refusal := _refusal(request, options)) is not None:
            return refusal
        number = next(numbers)
        plan = plan_response(options if request.speculates else greedy, number, request.num_tokens)
        if plan.failure is Failure.REFUSED:
            return JSONResponse(_FAILURE, 500)
        output = continuation(request.tokens, request.num_tokens, options.seed)
        play = engine.streamed if request.stream else engine.whole
        status = 500 if plan.failure is Failure.ERROR_EVENT and not request.stream else 200
        pieces = play(request, output, plan, Wire(number, options.model, is_chat=is_chat))
        return _Pieces(pieces, is_stream=bool(request.stream), status=status)

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        model = {"id": options.model, "object": "model", "created": started, "owned_by": "mock", "root": options.model}
        return JSONResponse({"object": "list", "data": [model | {"max_model_len": MAX_MODEL_LEN}]})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(counters.exposition(), media_type="text/plain; version=0.0.4")

    @app.post(COMPLETIONS)
    async def completions(request: CompletionRequest) -> Response:
        response = respond(request, is_chat=False)
        counters.http(COMPLETIONS, response.status_code)
        return response

    @app.post(CHAT)
    async def chat_completions(request: ChatRequest) -> Response:
        response = respond(request, is_chat=True)
        counters.http(CHAT, response.status_code)
        return response

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: HttpRequest, error: RequestValidationError) -> JSONResponse:
        counters.http(request.url.path, 400)
        first = error.errors()[0]
        # ("body", "max_tokens", ...); the rest of the path names types of ours.
        param = str(first["loc"][1]) if len(first["loc"]) > 1 and first["type"] != "json_invalid" else None
        meaning = str(first["msg"]).removeprefix("Value error, ")
        if param == "prompt":
            # Else only the first of its forms would be named.
            meaning = "must be a text or a list of token ids, and not empty"
        message = f"{param}: {meaning}" if param else meaning
        return JSONResponse(error_body(message, "BadRequestError", 400, param), 400)

    return app


def _refusal(request: ApiRequest, options: MockOptions) -> JSONResponse | None:
    if request.model != options.model:
        message = f"The model `{request.model}` does not exist. This mock server has `{options.model}`."
        return JSONResponse(error_body(message, "NotFoundError", 404, "model"), 404)
    length = len(request.tokens) + request.num_tokens
    if length > MAX_MODEL_LEN:
        message = (
            f"{len(request.tokens)} prompt tokens and {request.num_tokens} output tokens are {length}; this model's "
            f"maximum context length is {MAX_MODEL_LEN} tokens. Send a shorter prompt or a smaller max_tokens."
        )
        return JSONResponse(error_body(message, "BadRequestError", 400, "max_tokens"), 400)
    return None
