"""A closed loop: a stream sends its next request when the one before has ended."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vllm_spec_tools.bench.records import LoadOutput, LoadRequest, Phase, Progress

# Of a request that has not ended, for its time per token to count.
_LEAST_TOKENS = 16


class StreamingEngine(Protocol):
    """An engine that is driven step by step."""

    def add(self, request: LoadRequest) -> str:
        """Adds a request and returns its name."""
        ...

    def step(self) -> Iterable[tuple[str, Sequence[int], bool]]:
        """Makes a step: of each request that got something, its name, new tokens, and whether it has ended."""
        ...

    def abort(self, names: Iterable[str]) -> None:
        """Gives requests up."""
        ...

    def next_turn(self, request: LoadRequest, token_ids: Sequence[int]) -> LoadRequest | None:
        """Returns what follows a request that was answered so; None if nothing does, or it does not fit."""
        ...


class ClosedLoop:
    """Keeps a number of requests in flight.

    The list of requests is common to all streams: one that ends takes the next, so the mixture of kinds that was
    begun does not depend on speed. A conversation keeps its stream to its last turn.
    """

    def __init__(
        self, engine: StreamingEngine, streams: int, phase: Phase, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Sends the first requests.

        Args:
            phase: the requests to send. Those of a pass are measured from here on.
        """
        self._engine, self._clock = engine, clock
        self._num_streams, self._num_tokens = streams, phase.num_tokens
        self._waiting = iter(phase.requests) if phase.is_pass else itertools.cycle(phase.requests)
        self._streamed: list[_Streamed] = []
        self._in_flight: dict[str, _Streamed] = {}
        self._is_measured = phase.is_pass
        self._ttft: list[float] = []
        self._tpot: list[float] = []
        self._latency: list[float] = []
        self._start = clock()
        for _ in range(streams):
            self._ask()

    def ramp_up(self, min_steps: int = 1) -> None:
        """Goes on until each of the first requests has output tokens.

        That all prompts come at once happens only here, and takes long beside what a run takes.

        Args:
            min_steps: minimum number of steps. A few wake an engine that was idle while others ran, and lost its place
                in the caches and in memory.
        """
        for num_steps in itertools.count(1):
            self._step()
            if num_steps >= min_steps and all(request.token_ids for request in self._streamed[: self._num_streams]):
                return

    def run(self) -> Progress:
        """Goes on until the phase's tokens are written, and gives up what is in flight then.

        This is the measured time. Of a request that began before it, only what comes in it counts.
        """
        if not self._is_measured:
            self._is_measured, self._start = True, self._clock()
            for request in self._in_flight.values():
                request.count_from_here()
        seconds, tokens, written, request_steps = list[float](), list[int](), 0, 0
        while written < self._num_tokens and self._in_flight:
            now, counts = self._step()
            written += sum(counts)
            request_steps += sum(num_new > 0 for num_new in counts)
            if any(counts):
                seconds.append(now - self._start)
                tokens.append(written)
        for request in self._in_flight.values():
            if request.num_counted >= _LEAST_TOKENS:
                self._note_tpot(request)
        self._engine.abort(self._in_flight)
        outputs = [request.output() for request in self._streamed]
        return Progress(seconds, tokens, request_steps, self._ttft, self._tpot, self._latency, outputs)

    def _ask(self, ended: "_Streamed | None" = None) -> None:
        """Sends the next turn of a conversation, or the next request."""
        turn = self._engine.next_turn(ended.request, ended.token_ids) if ended and ended.request.turns else None
        request = turn or next(self._waiting, None)
        if request is None:
            return
        together = ended.conversation if turn and ended else []
        streamed = _Streamed(request, together, self._clock(), self._is_measured)
        if not together:
            self._streamed.append(streamed)
        together.append(streamed)
        self._in_flight[self._engine.add(request)] = streamed

    def _step(self) -> tuple[float, list[int]]:
        """Returns the moment after it, and the number of new tokens of each request that got something."""
        results = self._engine.step()
        now = self._clock()
        counts = []
        for name, token_ids, has_ended in results:
            request = self._in_flight[name]
            if token_ids and not request.token_ids and request.began_measured:
                self._ttft.append(now - request.asked)
            request.receive(token_ids, now)
            counts.append(len(token_ids))
            if has_ended:
                request.has_ended = True
                if self._is_measured:
                    self._note_tpot(request)
                if request.began_measured:
                    self._latency.append(now - request.asked)
                del self._in_flight[name]
                self._ask(request)
        return now, counts

    def _note_tpot(self, request: "_Streamed") -> None:
        if request.num_counted > 1:
            self._tpot.append((request.last - request.first) / (request.num_counted - 1))


@dataclass
class _Streamed:
    """A request, and its result so far.

    Attributes:
        conversation: the conversation's turns so far, this one included.
        first, last: moments of its first and its latest tokens; of one that began before the measured time, the first
            that counts is the last one before it.
    """

    request: LoadRequest
    conversation: "list[_Streamed]"
    asked: float
    began_measured: bool
    first: float = 0.0
    last: float = 0.0
    num_counted: int = 0
    token_ids: list[int] = field(default_factory=list)
    has_ended: bool = False

    def receive(self, token_ids: Sequence[int], now: float) -> None:
        """Takes tokens that came together."""
        if not token_ids:
            return
        if not self.num_counted:
            self.first = now
        self.last = now
        self.num_counted += len(token_ids)
        self.token_ids += token_ids

    def count_from_here(self) -> None:
        """Makes the latest token, if there is one, the first that counts."""
        self.first, self.num_counted = self.last, min(self.num_counted, 1)

    def output(self) -> LoadOutput:
        """Returns the output of a conversation's first turn, with those of later turns."""
        later = (LoadOutput(one.token_ids, one.has_ended, one.request.prompt) for one in self.conversation[1:])
        return LoadOutput(self.token_ids, self.has_ended, turns=tuple(later))
