"""A closed loop: a stream asks for its next text when it has got the one before. Imports no vLLM."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from vllm_spec_plugin.bench.load.records import Phase, Progress, Request


class StreamingEngine(Protocol):
    """An engine that is driven step by step."""

    def add(self, request: Request) -> str:
        """Takes a request in, and says what it is called from now on."""
        ...

    def step(self) -> Iterable[tuple[str, int, bool]]:
        """Makes a step: of each request that got something, its name, new tokens, and whether it has ended."""
        ...

    def abort(self, names: Iterable[str]) -> None:
        """Gives requests up."""
        ...


class ClosedLoop:
    """Keeps a number of requests in flight.

    The list of requests is common to all streams: who is through takes the next, so the mixture of kinds that was
    begun does not depend on who is fast.
    """

    def __init__(self, engine: StreamingEngine, streams: int, phase: Phase) -> None:
        """Asks for the first of the requests.

        Args:
            engine: without requests.
            streams: at least 1.
            phase: what to ask for.
        """
        self._engine = engine
        self._num_tokens = phase.num_tokens
        self._waiting = itertools.cycle(phase.requests)
        self._in_flight: dict[str, str] = {}
        for _ in range(streams):
            self._ask()

    def ramp_up(self, least_steps: int = 1) -> None:
        """Goes on until each of the first requests has output tokens.

        That all prompts come at once happens only here, and takes long beside what a run takes.

        Args:
            least_steps: to make in any case. A few wake an engine that was idle while others ran, and lost its place
                in the caches and in memory.
        """
        silent = set(self._in_flight)
        for num_steps in itertools.count(1):
            silent -= {name for name, _, num_new in self._step() if num_new}
            if not silent and num_steps >= least_steps:
                return

    def run(self, clock: Callable[[], float] = time.perf_counter) -> Progress:
        """Goes on until the phase's tokens are written, and gives up what is in flight then.

        Args:
            clock: tells seconds.
        """
        by_kind: Counter[str] = Counter()
        seconds: list[float] = []
        tokens: list[int] = []
        written, request_steps, start = 0, 0, clock()
        while written < self._num_tokens:
            before = written
            for _, kind, num_new in self._step():
                written += num_new
                request_steps += num_new > 0
                by_kind[kind] += num_new
            if written > before:
                seconds.append(clock() - start)
                tokens.append(written)
        self._engine.abort(self._in_flight)
        return Progress(seconds, tokens, dict(by_kind), request_steps)

    def _ask(self) -> None:
        request = next(self._waiting)
        self._in_flight[self._engine.add(request)] = request.kind

    def _step(self) -> list[tuple[str, str, int]]:
        """Of each request that got something, its name, kind and new tokens."""
        found = []
        for name, num_new, has_ended in self._engine.step():
            found.append((name, self._in_flight[name], num_new))
            if has_ended:
                del self._in_flight[name]
                self._ask()
        return found
