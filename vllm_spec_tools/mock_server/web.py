"""The web side of the mock server. Imported when it starts, for FastAPI takes its time."""

import dataclasses
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from vllm_spec_tools.mock_server.answers import CUT, MockEngine, Piece, failure_body, streamed, whole
from vllm_spec_tools.mock_server.options import MAX_MODEL_LEN, MockOptions
from vllm_spec_tools.mock_server.plan import Failure, plan_response
from vllm_spec_tools.mock_server.requests import ChatRequest, CompletionRequest, Generation
from vllm_spec_tools.mock_server.text import continuation
from vllm_spec_tools.mock_server.wire import ChatWire, CompletionWire, Identity, error_body

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


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
                if piece is CUT:
                    # uvicorn closes the connection of a response that was not ended.
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def create_app(options: MockOptions) -> FastAPI:
    """The application, with counters of its own."""
    app = FastAPI(openapi_url=None)
    engine = MockEngine(options)
    counters = engine.counters
    greedy = dataclasses.replace(options, tokens_per_chunk=1.0)
    numbers = itertools.count()
    started = int(time.time())

    def answer(request: Generation, *, is_chat: bool) -> Response:
        response = respond(request, is_chat=is_chat)
        counters.http(CHAT if is_chat else COMPLETIONS, response.status_code)
        return response

    def respond(request: Generation, *, is_chat: bool) -> Response:
        refusal = _refusal(request, options)
        if refusal is not None:
            return refusal
        number = next(numbers)
        plan = plan_response(options if request.speculates else greedy, number, request.max_tokens)
        if plan.failure is Failure.REFUSED:
            return JSONResponse(failure_body(), 500)
        tokens = continuation(request.prompt, request.max_tokens, options.seed)
        identity = Identity(f"{'chatcmpl' if is_chat else 'cmpl'}-mock-{number}", int(time.time()), options.model)
        wire = ChatWire(identity) if is_chat else CompletionWire(identity)
        play = streamed if request.stream else whole
        status = 500 if plan.failure is Failure.ERROR_EVENT and not request.stream else 200
        return _Pieces(play(request, tokens, plan, wire, engine), is_stream=request.stream, status=status)

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        model = {
            "id": options.model,
            "object": "model",
            "created": started,
            "owned_by": "mock",
            "root": options.model,
            "max_model_len": MAX_MODEL_LEN,
        }
        return JSONResponse({"object": "list", "data": [model]})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(counters.exposition(), media_type="text/plain; version=0.0.4")

    @app.post(COMPLETIONS)
    async def completions(request: CompletionRequest) -> Response:
        return answer(request.generation(), is_chat=False)

    @app.post(CHAT)
    async def chat_completions(request: ChatRequest) -> Response:
        return answer(request.generation(), is_chat=True)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: RequestValidationError) -> JSONResponse:
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


def _refusal(request: Generation, options: MockOptions) -> JSONResponse | None:
    if request.model != options.model:
        message = f"The model `{request.model}` does not exist. This mock server has `{options.model}`."
        return JSONResponse(error_body(message, "NotFoundError", 404, "model"), 404)
    length = len(request.prompt) + request.max_tokens
    if length > MAX_MODEL_LEN:
        message = (
            f"{len(request.prompt)} prompt tokens and {request.max_tokens} output tokens are {length}; this model's "
            f"maximum context length is {MAX_MODEL_LEN} tokens. Send a shorter prompt or a smaller max_tokens."
        )
        return JSONResponse(error_body(message, "BadRequestError", 400, "max_tokens"), 400)
    return None
