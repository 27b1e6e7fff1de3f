"""The mock server in a thread."""

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

from vllm_spec_tools.mock_server.options import MockOptions
from vllm_spec_tools.mock_server.running import listen, url_of, web_server


class MockServer:
    """A mock server in a thread of this process, as a context manager: answering when entered, gone when left.

    Attributes:
        base_url: scheme, host and port, without a trailing slash or "/v1", once it was started.
    """

    def __init__(self, options: MockOptions | None = None) -> None:
        self._options = options or MockOptions(port=0)
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Starts the server and returns when it answers."""
        listener = self._running.enter_context(listen(self._options))
        self.port: int = listener.getsockname()[1]
        self.base_url = url_of(self._options.host, self.port)
        server = web_server(self._options)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="mock-server", daemon=True)
        thread.start()
        self._running.callback(thread.join)
        self._running.callback(setattr, server, "should_exit", True)
        while not server.started:
            assert thread.is_alive(), f"the mock server did not start on {self.base_url}; its log says why"
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends the server; open streams are cut after a second. Does nothing if it is not running."""
        self._running.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
