"""The mock server in a thread."""

import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.mock_server.options import MockOptions
from vllm_spec_tools.mock_server.running import listen, url_of, web_server

if TYPE_CHECKING:
    import uvicorn

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
        return url_of(self.options.host, self.port)

    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            UserError: its address cannot be listened on, or it ended at once.
        """
        self._listener = listen(self.options)
        self.port = self._listener.getsockname()[1]
        self._server = server = web_server(self.options)
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
