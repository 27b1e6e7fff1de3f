"""Runs the mock server: in the foreground, or in a thread for tests and other code."""

import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.mock_server.options import MockOptions

if TYPE_CHECKING:
    import uvicorn

# Seconds that open streams have when the server is told to end; they are cut then.
_GRACE = 1
_POLL_SECONDS = 0.01
_START_SECONDS = 30.0


class MockServer:
    """A mock server in a thread of this process, as a context manager: answering when entered, gone when left."""

    def __init__(self, options: MockOptions | None = None) -> None:
        self.options = options or MockOptions(port=0)
        self.port = self.options.port
        self._listener: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Scheme, host and port, without a trailing slash or "/v1"."""
        return _url(self.options.host, self.port)

    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            UserError: its address cannot be listened on, or it ended at once.
        """
        self._listener = _listen(self.options)
        self.port = self._listener.getsockname()[1]
        self._server = server = _uvicorn(self.options)
        arguments = {"sockets": [self._listener]}
        self._thread = threading.Thread(target=server.run, kwargs=arguments, name="mock-server", daemon=True)
        self._thread.start()
        waited = 0.0
        while not server.started:
            self._thread.join(_POLL_SECONDS)
            waited += _POLL_SECONDS
            if not self._thread.is_alive() or waited > _START_SECONDS:
                self.stop()
                raise UserError(f"the mock server did not start on {self.base_url}; its log says why")

    def stop(self) -> None:
        """Ends the server; open streams are cut after a second. Does nothing if it is not running."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
        if self._listener is not None:
            self._listener.close()
        self._server = self._thread = self._listener = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def run_mock_server(options: MockOptions, say: Callable[[str], None]) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C, then returns.

    Raises:
        UserError: its address cannot be listened on.
    """
    with _listen(options) as listener:
        server = _uvicorn(options)

        def end(signal_number: int, frame: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn hands a signal on after it has ended; without a handler of ours the process would die of it.
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            say(_url(options.host, listener.getsockname()[1]))
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(options: MockOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    # As servers do: a port whose last connections are still closing can be listened on.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        where = f"{options.host}:{options.port}"
        raise UserError(f"{where} cannot be listened on ({error.strerror}): choose another host or port") from None
    return listener


def _uvicorn(options: MockOptions) -> "uvicorn.Server":
    import uvicorn

    from vllm_spec_tools.mock_server.web import create_app

    logging.getLogger("uvicorn.error").addFilter(_is_not_a_planned_cut)
    config = uvicorn.Config(
        create_app(options),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE,
    )
    return uvicorn.Server(config)


def _is_not_a_planned_cut(record: logging.LogRecord) -> bool:
    return "returned without completing response" not in record.getMessage()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
