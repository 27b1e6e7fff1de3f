"""Streams on an engine made up."""

from collections.abc import Iterable

import pytest

from vllm_spec_plugin.bench.load.closed_loop import ClosedLoop
from vllm_spec_plugin.bench.load.records import Phase, Progress, Request


class MadeUpEngine:
    """Gives each request in flight `speeds[kind]` tokens per step; a step takes a second."""

    def __init__(self, **speeds: int) -> None:
        self.speeds = speeds
        self.added: list[Request] = []
        self.left: dict[str, int] = {}
        self.in_flight: list[int] = []
        self.aborted: list[str] = []
        self.now = 0.0

    def add(self, request: Request) -> str:
        name = f"r{len(self.added)}"
        self.added.append(request)
        self.left[name] = request.num_tokens
        return name

    def step(self) -> list[tuple[str, int, bool]]:
        assert self.left, "a step without requests"
        self.now += 1.0
        self.in_flight.append(len(self.left))
        found = []
        for name, left in list(self.left.items()):
            given = min(self.speeds[self.added[int(name[1:])].kind], left)
            self.left[name] -= given
            if not self.left[name]:
                del self.left[name]
            if given:
                found.append((name, given, name not in self.left))
        return found

    def abort(self, names: Iterable[str]) -> None:
        self.aborted += names

    def clock(self) -> float:
        return self.now


def run(engine: MadeUpEngine, streams: int, phase: Phase) -> Progress:
    return ClosedLoop(engine, streams, phase).run(engine.clock)


def request(kind: str = "easy", num_tokens: int = 4) -> Request:
    return Request(kind, "text", 0.0, num_tokens)


@pytest.mark.parametrize("streams", [1, 3])
def test_so_many_requests_are_always_in_flight(streams: int) -> None:
    engine = MadeUpEngine(easy=3)
    run(engine, streams, Phase((request(num_tokens=4), request(num_tokens=7)), 50))
    assert set(engine.in_flight) == {streams}


def test_a_phase_ends_with_its_tokens_and_gives_up_the_rest() -> None:
    engine = MadeUpEngine(easy=2)
    progress = run(engine, 2, Phase((request(num_tokens=8),), 10))
    assert (progress.tokens, progress.seconds) == ([4, 8, 12], [1.0, 2.0, 3.0])
    assert progress.tokens_per_second == 4.0
    assert progress.request_steps == 6
    assert sorted(engine.aborted) == ["r0", "r1"]


def test_who_is_through_takes_the_next_of_the_common_list() -> None:
    engine = MadeUpEngine(easy=4, hard=1)
    listed = (request("hard", 4), request("easy", 4), request("easy", 5), request("hard", 4))
    progress = run(engine, 2, Phase(listed, 16))
    # The fast stream does all the easy ones and the second hard one while the slow one does the first.
    assert [added.kind for added in engine.added][:4] == ["hard", "easy", "easy", "hard"]
    assert progress.tokens_by_kind == {"hard": progress.tokens[-1] - 9, "easy": 9}


def test_the_list_begins_anew_at_its_end() -> None:
    engine = MadeUpEngine(easy=4)
    run(engine, 1, Phase((request(num_tokens=2), request(num_tokens=3)), 10))
    assert [added.num_tokens for added in engine.added] == [2, 3, 2, 3, 2]


def test_steps_that_bring_nothing_count_as_time() -> None:
    engine = MadeUpEngine(easy=2)
    slow_start = iter([True, True])
    step = engine.step

    def late() -> list[tuple[str, int, bool]]:
        if next(slow_start, False):
            engine.now += 1.0
            return []
        return step()

    engine.step = late  # type: ignore[method-assign]
    progress = run(engine, 1, Phase((request(num_tokens=8),), 4))
    assert (progress.tokens, progress.seconds) == ([2, 4], [3.0, 4.0])


def test_the_clock_starts_when_each_stream_has_its_first_token() -> None:
    engine = MadeUpEngine(slow=0, easy=1)
    loop = ClosedLoop(engine, 2, Phase((request("slow", 100), request("easy", 100)), 8))
    step = engine.step

    def first_prompt_takes_nine_steps() -> list[tuple[str, int, bool]]:
        engine.speeds["slow"] = int(engine.now >= 9)
        return step()

    engine.step = first_prompt_takes_nine_steps  # type: ignore[method-assign]
    loop.ramp_up()
    assert engine.now == 10
    progress = loop.run(engine.clock)
    assert (progress.tokens, progress.seconds) == ([2, 4, 6, 8], [1.0, 2.0, 3.0, 4.0])
    assert progress.tokens_by_kind == {"slow": 4, "easy": 4}


def test_an_engine_is_woken_by_a_few_steps_even_if_its_first_brings_tokens() -> None:
    engine = MadeUpEngine(easy=1)
    ClosedLoop(engine, 1, Phase((request(num_tokens=2),), 8)).ramp_up(6)
    assert engine.now == 6
    assert len(engine.left) == 1
