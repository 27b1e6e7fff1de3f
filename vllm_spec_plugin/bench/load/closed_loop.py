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


def drive(
    engine: StreamingEngine, streams: int, phase: Phase, clock: Callable[[], float] = time.perf_counter
) -> Progress:
    """Keeps `streams` requests in flight until the phase's tokens are written.

    The list of requests is common to all streams: who is through takes the next, so the mixture of kinds that was
    begun does not depend on who is fast.

    Args:
        engine: without requests.
        streams: at least 1.
        phase: what to ask for.
        clock: tells seconds.
    """
    waiting = itertools.cycle(phase.requests)
    in_flight: dict[str, str] = {}
    by_kind: Counter[str] = Counter()

    def ask() -> None:
        request = next(waiting)
        in_flight[engine.add(request)] = request.kind

    seconds: list[float] = []
    tokens: list[int] = []
    written, request_steps, start = 0, 0, clock()
    for _ in range(streams):
        ask()
    while written < phase.num_tokens:
        before = written
        for name, num_new, has_ended in engine.step():
            written += num_new
            request_steps += num_new > 0
            by_kind[in_flight[name]] += num_new
            if has_ended:
                del in_flight[name]
                ask()
        if written > before:
            seconds.append(clock() - start)
            tokens.append(written)
    engine.abort(in_flight)
    return Progress(seconds, tokens, dict(by_kind), request_steps)
