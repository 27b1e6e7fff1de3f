"""From a response's bytes to its record."""

from loadtests.stream.chunks import Chunk, ChunkError, ErrorEvent, read_event
from loadtests.stream.sse import Ending, EventParser
from loadtests.stream.timing import ErrorKind, StreamRecord


class StreamReader:
    """Collects one request's chunks, and what went wrong. Moments are seconds of one monotonic clock.

    Attributes:
        is_over: nothing more is wanted: `[DONE]` came, or the stream failed.
    """

    def __init__(self, started: float) -> None:
        """Begins with a request's sending.

        Args:
            started: the moment.
        """
        self.is_over = False
        self._started = started
        self._parser = EventParser()
        self._chunks: list[tuple[float, Chunk]] = []
        self._error: ErrorKind | None = None
        self._message = ""

    def feed(self, piece: bytes, moment: float) -> None:
        """Takes bytes of the body of a response whose status was 200."""
        for event in self._parser.feed(piece):
            if self.is_over:
                return
            try:
                told = read_event(event)
            except ChunkError as error:
                self.fail(ErrorKind.MALFORMED, str(error))
                return
            if isinstance(told, ErrorEvent):
                self.fail(ErrorKind.ERROR_EVENT, told.message)
            elif told is None:
                self.is_over = True
            else:
                self._chunks.append((moment, told))

    def fail(self, error: ErrorKind, message: str) -> None:
        """Takes note that the request failed. What failed first counts; nothing does after `[DONE]`."""
        if not self.is_over:
            self.is_over = True
            self._error, self._message = error, message

    def end(self, moment: float) -> StreamRecord:
        """The record of a request of which nothing more will come."""
        if not self.is_over:
            within = self._parser.ending is Ending.UNFINISHED
            self.fail(ErrorKind.CUT, f"the stream ended {'within an event' if within else 'before [DONE]'}")
        return StreamRecord(self._started, moment, tuple(self._chunks), self._error, self._message)


def status_error(status: int) -> ErrorKind | None:
    """What an HTTP status says about a request: None for success; malformed if it is neither success nor error."""
    if 200 <= status < 300:
        return None
    if 400 <= status < 500:
        return ErrorKind.HTTP_4XX
    return ErrorKind.HTTP_5XX if 500 <= status < 600 else ErrorKind.MALFORMED
