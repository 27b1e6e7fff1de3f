"""An OpenAI-compatible server without a model, in a thread: streams like vLLM, fails by plan, and counts."""

import contextlib
import json
import math
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_KV_TOKENS = 65536
# Ways of failing, which take turns: an HTTP error, an error event in the stream, the end of the connection.
_REFUSED, _EVENT, _CUT = range(3)
_FAILURE = {"error": {"message": "planned failure of the mock server", "type": "InternalServerError", "code": 500}}
_DRAFTS = tuple(f"spec_decode_num_{name}" for name in ("drafts", "draft_tokens", "accepted_tokens"))
_COUNTED = ("prompt_tokens", "generation_tokens", "request_success", *_DRAFTS)
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


@dataclass(frozen=True)
class MockOptions:
    """Model, speed and failures.

    Attributes:
        ttft_ms: milliseconds to the first chunk, which has one token.
        itl_ms: milliseconds between chunks.
        tokens_per_chunk: mean tokens of the other chunks, as with speculation.
        error_rate: share of requests that fail, evenly spread.
    """

    port: int = 0
    model: str = "mock"
    ttft_ms: float = 50.0
    itl_ms: float = 10.0
    tokens_per_chunk: float = 1.0
    error_rate: float = 0.0


class MockServer:
    """The server as a context manager: answering when entered, gone when left, with all connections.

    Attributes:
        base_url: scheme, host and port, once it was started.
    """

    def __init__(self, options: MockOptions | None = None) -> None:
        self.options = options or MockOptions()
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self._server: _Server | None = None

    def start(self) -> None:
        """Starts the server, which answers then."""
        self._server = _Server(self)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Ends the server and its connections. Does nothing if it is not running."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.end_connections()
            server.server_close()

    def count(self, **more: float) -> None:
        """Adds to the metrics."""
        with self.lock:
            self.counts.update(more)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, mock: MockServer) -> None:
        self.mock, self._connections = mock, set[Any]()
        super().__init__(("127.0.0.1", mock.options.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)


class _BadRequestError(Exception):
    """Parameters that vLLM would refuse."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client left
            super().handle()

    def do_GET(self) -> None:
        mock = self.server.mock
        if self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": mock.options.model, "max_model_len": 32768}]})
        elif self.path == "/metrics":
            with mock.lock:
                lines = [f"vllm:{name}_total {mock.counts[name]}" for name in _COUNTED]
                lines += [f"vllm:{name} {mock.counts[name]}" for name in _GAUGES]
            self._answer(200, "\n".join([*lines, ""]))
        else:
            self._answer(200, "")

    def do_POST(self) -> None:
        mock = self.server.mock
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        is_chat = self.path.endswith("chat/completions")
        try:
            request = _Request(raw, is_chat)
        except (ValueError, KeyError, _BadRequestError) as error:
            message = str(error) or type(error).__name__
            self._answer(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})
            return
        with mock.lock:
            number = mock.counts["requests"]
            mock.counts["requests"] += 1
        failure = _failure(mock.options.error_rate, number)
        if failure == _REFUSED:
            self._answer(500, _FAILURE)
            return
        held, tokens = len(request.prompt) / _KV_TOKENS, 0
        mock.count(num_requests_running=1, kv_cache_usage_perc=held)
        is_whole = False
        try:
            if request.is_stream:
                self._send_head(200, "text/event-stream", chunked=True)
            for tokens in self._steps(request, number, failure is not None):
                if request.is_stream:
                    self._send_events(request.events(tokens, is_failing=failure is not None))
            is_whole = failure is None
        finally:
            mock.count(num_requests_running=-1, kv_cache_usage_perc=-held, request_success=is_whole)
        if not request.is_stream:
            self._answer(200 if is_whole else 500, request.whole() if is_whole else _FAILURE)
        elif failure == _CUT:
            self.close_connection = True
        else:
            last = [_FAILURE] if failure == _EVENT else [request.usage_event(tokens)]
            self._send_events([*last, None])
            self.wfile.write(b"0\r\n\r\n")

    def _steps(self, request: "_Request", number: int, is_failing: bool) -> Iterator[int]:
        """Yields the number of tokens after each step of the engine, at its time; half of them where it will fail.

        Each step but the first has 1 + Binomial(K, (m - 1) / K) tokens, m being the mean and K twice the accepted ones.
        """
        mock, options = self.server.mock, self.server.mock.options
        rng, begin, done, steps = random.Random(number), time.monotonic(), 0, 0
        drafts = math.ceil(2 * (options.tokens_per_chunk - 1)) if request.has_drafts else 0
        while done < (request.num_tokens // 2 if is_failing else request.num_tokens):
            due = begin + (options.ttft_ms + steps * options.itl_ms) / 1000
            time.sleep(max(due - time.monotonic(), 0))
            chances = [(options.tokens_per_chunk - 1) / drafts for _ in range(drafts if steps else 0)]
            accepted = sum(rng.random() < chance for chance in chances)
            size = min(1 + accepted, request.num_tokens - done)
            mock.count(generation_tokens=size, prompt_tokens=0 if steps else len(request.prompt))
            if drafts and steps:
                of_drafts = {"spec_decode_num_draft_tokens": drafts, "spec_decode_num_accepted_tokens": size - 1}
                mock.count(spec_decode_num_drafts=1, **of_drafts)
            done, steps = done + size, steps + 1
            yield done

    def _send_head(self, status: int, kind: str, *, chunked: bool = False, size: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
        self.end_headers()

    def _send_events(self, bodies: list[Any]) -> None:
        """Sends server-sent events as one piece; None is the last one."""
        texts = ["[DONE]" if body is None else json.dumps(body, ensure_ascii=False) for body in bodies]
        raw = "".join(f"data: {text}\n\n" for text in texts).encode()
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

    def _answer(self, status: int, body: Any) -> None:
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        self._send_head(status, "text/plain" if isinstance(body, str) else "application/json", size=len(raw))
        self.wfile.write(raw)


def _failure(rate: float, number: int) -> int | None:
    """The failure of a request: at a rate of 0.25 every fourth has one."""
    before, after = math.floor(number * rate), math.floor((number + 1) * rate)
    return before % 3 if after > before else None


class _Request:
    """A completion or a chat, whose output depends on its prompt only."""

    def __init__(self, raw: bytes, is_chat: bool) -> None:
        body = json.loads(raw)
        given = body["messages"] if is_chat else body["prompt"]
        self.num_tokens = body.get("max_completion_tokens") or body.get("max_tokens", 16)
        if not given or self.num_tokens < 1:
            raise _BadRequestError(f"max_tokens: got {self.num_tokens}; or an empty prompt")
        self.prompt, self._is_chat = json.dumps(given).split(), is_chat
        self.is_stream, self._ids = bool(body.get("stream")), body.get("return_token_ids")
        self.has_drafts = (body.get("vllm_xargs") or {}).get("spec") != "off"
        rng = random.Random(json.dumps(given))
        self._output, self._sent = [rng.randrange(256) for _ in range(self.num_tokens)], 0

    def events(self, done: int, *, is_failing: bool) -> list[dict[str, Any]]:
        """The chunks up to a number of tokens; a chat's first one opens it."""
        part, is_first = self._output[self._sent : done], not self._sent
        self._sent = done
        choice: dict[str, Any] = {"index": 0, "token_ids": part if self._ids else None}
        choice["finish_reason"] = "length" if done == self.num_tokens and not is_failing else None
        choice |= {"delta": {"content": _text(part)}} if self._is_chat else {"text": _text(part)}
        if is_first and self._ids:
            choice["prompt_token_ids"] = list(range(len(self.prompt)))
        opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        first = [{"choices": [opening]} | self._usage(0)] if self._is_chat and is_first else []
        return [*first, {"choices": [choice]} | self._usage(done)]

    def whole(self) -> dict[str, Any]:
        """A response that is not streamed."""
        text = _text(self._output)
        choice = {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        return {"choices": [choice | {"index": 0, "finish_reason": "length"}]} | self._usage(self.num_tokens)

    def usage_event(self, done: int) -> dict[str, Any]:
        """The last chunk."""
        return {"choices": []} | self._usage(done)

    def _usage(self, done: int) -> dict[str, Any]:
        counts = {"prompt_tokens": len(self.prompt), "completion_tokens": done, "total_tokens": len(self.prompt) + done}
        return {"id": "mock", "object": "chunk", "created": 0, "model": "mock", "usage": counts}


def _text(tokens: list[int]) -> str:
    """A word per token, some of them of more than one byte a character."""
    return "".join(f" {'é' if token % 4 else 'e'}{token}" for token in tokens)
