"""Runs the mock server in the foreground."""

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.mock_server.options import MockOptions

if TYPE_CHECKING:
    import uvicorn

# Seconds that open streams have when the server is told to end; they are cut then.
_GRACE = 1


def run_mock_server(options: MockOptions, say: Callable[[str], None]) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C, then returns.

    Raises:
        UserError: its address cannot be listened on.
    """
    with listen(options) as listener:
        server = web_server(options)

        def end(signal_number: int, frame: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn hands a signal on after it has ended; without a handler of ours the process would die of it.
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            say(url_of(options.host, listener.getsockname()[1]))
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(options: MockOptions) -> socket.socket:
    """Listens where the options say.

    Raises:
        UserError: its address cannot be listened on.
    """
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


def web_server(options: MockOptions) -> "uvicorn.Server":
    """The web server, not yet running."""
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


def url_of(host: str, port: int) -> str:
    """Scheme, host and port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
