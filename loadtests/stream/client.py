"""Asks a server for a stream, and notes what comes when."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import requests
import urllib3

from loadtests.stream.reading import StreamReader, status_error
from loadtests.stream.timing import ErrorKind, StreamRecord

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# What an error's body is read of.
_MOST_MESSAGE = 500


class StreamingClient:
    """One user of an OpenAI-compatible server; its connection is kept from request to request."""

    def __init__(
        self, base_url: str, api_key: str = "", timeout: float = 120.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Connects to nothing yet.

        Args:
            base_url: scheme, host and port, without "/v1".
            api_key: empty for none.
            timeout: most seconds to wait for a connection, and then from one piece of an answer to the next.
            clock: tells seconds.
        """
        self._base_url, self._timeout, self._clock = base_url.rstrip("/"), timeout, clock
        self._session = requests.Session()
        # Compressed, chunks would wait for one another.
        self._session.headers["Accept-Encoding"] = "identity"
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def ask(self, path: str, body: Mapping[str, Any], most_pieces: int | None = None) -> StreamRecord:
        """Sends a request and reads its stream to the end.

        Args:
            path: `COMPLETIONS` or `CHAT`.
            body: of the request; that it is to be streamed, and to tell its usage, is added.
            most_pieces: after so many the connection is closed, as by a user who leaves, and the record ends `CUT`.
                None is to the end.
        """
        started = self._clock()
        reader = StreamReader(started)
        asked = dict(body) | {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        timeouts = (self._timeout, self._timeout)
        try:
            with self._session.post(self._base_url + path, json=asked, stream=True, timeout=timeouts) as response:
                failed = status_error(response.status_code)
                if failed is not None:
                    reader.fail(failed, f"HTTP {response.status_code}: {response.text[:_MOST_MESSAGE]}")
                    return reader.end(self._clock())
                # As they come: a read of a size would wait until so much is there.
                for num_pieces, piece in enumerate(response.raw.stream(None, decode_content=True), 1):
                    reader.feed(piece, self._clock())
                    if num_pieces == most_pieces:
                        reader.fail(ErrorKind.CUT, "the client left")
                        break
        except requests.exceptions.Timeout as error:
            reader.fail(ErrorKind.TIMEOUT, str(error))
        except requests.exceptions.ConnectionError as error:
            reader.fail(ErrorKind.CONNECT, str(error))
        except urllib3.exceptions.ReadTimeoutError as error:
            reader.fail(ErrorKind.TIMEOUT, str(error))
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            reader.fail(ErrorKind.CUT, str(error))
        return reader.end(self._clock())

    def close(self) -> None:
        """Ends the connection."""
        self._session.close()
