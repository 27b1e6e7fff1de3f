"""Streams on an engine made up."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from vllm_spec_tools.bench.load.closed_loop import ClosedLoop
from vllm_spec_tools.bench.records import LoadOutput, LoadRequest, Phase, Progress


class MadeUpEngine:
    """Gives each request in flight `speeds[kind]` tokens per step, a second each: its index times 100, and so on."""

    def __init__(self, **speeds: int) -> None:
        self.speeds = speeds
        self.added: list[LoadRequest] = []
        self.left: dict[str, int] = {}
        self.in_flight: list[int] = []
        self.aborted: list[str] = []
        self.now = 0.0

    def add(self, request: LoadRequest) -> str:
        name = f"r{len(self.added)}"
        self.added.append(request)
        self.left[name] = request.num_tokens
        return name

    def step(self) -> list[tuple[str, list[int], bool]]:
        assert self.left, "a step without requests"
        self.now += 1.0
        self.in_flight.append(len(self.left))
        found = []
        for name, left in list(self.left.items()):
            index = int(name[1:])
            request = self.added[index]
            given = min(self.speeds[request.kind], left)
            written = 100 * index + request.num_tokens - left
            self.left[name] -= given
            if not self.left[name]:
                del self.left[name]
            if given:
                found.append((name, list(range(written, written + given)), name not in self.left))
        return found

    def abort(self, names: Iterable[str]) -> None:
        self.aborted += names

    def next_turn(self, request: LoadRequest, token_ids: Sequence[int]) -> LoadRequest | None:
        chat = "".join(map(str, token_ids))
        return None if "too long" in request.turns else request.next_turn(chat, json.dumps)

    def clock(self) -> float:
        return self.now


def loop_of(engine: MadeUpEngine, streams: int, phase: Phase) -> ClosedLoop:
    return ClosedLoop(engine, streams, phase, engine.clock)


def run(engine: MadeUpEngine, streams: int, phase: Phase) -> Progress:
    return loop_of(engine, streams, phase).run()


def request(kind: str = "easy", num_tokens: int = 4) -> LoadRequest:
    return LoadRequest(kind, "text", 0.0, num_tokens)


def test_a_phase_ends_with_its_tokens_and_gives_up_the_rest() -> None:
    engine = MadeUpEngine(easy=2)
    progress = run(engine, 2, Phase((request(num_tokens=8),), 10))
    assert (progress.tokens, progress.seconds) == ([4, 8, 12], [1.0, 2.0, 3.0])
    assert progress.tokens_per_second == 4.0
    assert progress.request_steps == 6
    assert sorted(engine.aborted) == ["r0", "r1"]
    assert set(engine.in_flight) == {2}


def test_who_is_through_takes_the_next_of_the_common_list() -> None:
    engine = MadeUpEngine(easy=4, hard=1)
    listed = (request("hard", 4), request("easy", 4), request("easy", 5), request("hard", 4))
    run(engine, 2, Phase(listed, 16))
    # The fast stream does all the easy ones and the second hard one while the slow one does the first.
    assert [added.kind for added in engine.added][:4] == ["hard", "easy", "easy", "hard"]


def test_the_clock_starts_when_each_stream_has_its_first_token() -> None:
    engine = MadeUpEngine(slow=0, easy=1)
    loop = loop_of(engine, 2, Phase((request("slow", 100), request("easy", 100)), 8))
    step = engine.step

    def first_prompt_takes_nine_steps() -> list[tuple[str, list[int], bool]]:
        engine.speeds["slow"] = int(engine.now >= 9)
        return step()

    engine.step = first_prompt_takes_nine_steps  # type: ignore[method-assign]
    loop.ramp_up()
    assert engine.now == 10
    progress = loop.run()
    assert (progress.tokens, progress.seconds) == ([2, 4, 6, 8], [1.0, 2.0, 3.0, 4.0])
    assert sorted(len(output.token_ids) for output in progress.outputs) == [5, 14]


def test_outputs_are_noted_by_the_order_in_which_they_were_asked_for() -> None:
    engine = MadeUpEngine(easy=2)
    progress = run(engine, 2, Phase((request(num_tokens=3), request(num_tokens=4)), 10))
    assert progress.outputs == [
        LoadOutput([0, 1, 2], True),
        LoadOutput([100, 101, 102, 103], True),
        LoadOutput([200, 201], False),
        LoadOutput([300, 301], False),
    ]


def test_a_first_token_is_waited_for_from_when_it_was_asked_for() -> None:
    engine = MadeUpEngine(easy=2)
    step, num_steps = engine.step, 0

    def first_token_after_three_seconds() -> list[tuple[str, list[int], bool]]:
        nonlocal num_steps
        num_steps += 1
        engine.now += 2.0 if num_steps == 3 else 0.0
        return step()

    engine.step = first_token_after_three_seconds  # type: ignore[method-assign]
    # The first request began before this time, and the last one has no token yet.
    progress = run(engine, 1, Phase((request(num_tokens=4),), 8))
    assert (progress.seconds, progress.ttft) == ([1.0, 2.0, 5.0, 6.0], [3.0])


def test_time_per_token_is_from_the_first_to_the_last() -> None:
    progress = run(MadeUpEngine(easy=1, fast=3), 2, Phase((request("easy", 5), request("fast", 7)), 9))
    # 3 tokens at 1 s, 3 at 2 s, 1 at 3 s; the other request has three of five.
    assert progress.tpot == [2.0 / 6]


@pytest.mark.parametrize(("num_tokens", "tpot"), [(15, []), (16, [1.0])])
def test_a_request_in_flight_at_the_end_counts_from_16_tokens_on(num_tokens: int, tpot: list[float]) -> None:
    progress = run(MadeUpEngine(easy=1), 1, Phase((request(num_tokens=100),), num_tokens))
    assert progress.tpot == tpot


def test_what_a_request_waited_for_before_the_measured_time_is_not_in_its_time_per_token() -> None:
    engine = MadeUpEngine(easy=2)
    loop = loop_of(engine, 1, Phase((request(num_tokens=12),), 8))
    loop.ramp_up()
    engine.now += 50.0
    loop.ramp_up()
    # 4 tokens by then, the last one 1 step before the next.
    progress = loop.run()
    assert (progress.tpot, progress.ttft, progress.latency) == ([0.5], [], [])


def test_the_requests_of_a_pass_are_sent_once_and_measured_from_then() -> None:
    engine = MadeUpEngine(easy=1, hard=2)
    progress = run(engine, 2, Phase((request("easy", 4), request("hard", 4)), 8, is_pass=True))
    assert (len(engine.added), engine.in_flight) == (2, [2, 2, 1, 1])
    assert (progress.seconds, progress.tokens) == ([1.0, 2.0, 3.0, 4.0], [3, 6, 7, 8])
    assert (progress.ttft, progress.latency) == ([1.0, 1.0], [2.0, 4.0])
    assert progress.tpot == [1.0 / 3, 3.0 / 3]


def conversation(*turns: str) -> LoadRequest:
    return replace(request(num_tokens=2), chat=(("user", "text"),), turns=turns)


def test_a_turn_is_asked_by_the_same_stream_after_the_models_own_answer() -> None:
    engine = MadeUpEngine(easy=1)
    listed = (conversation("more", "last"), request(num_tokens=8), request())
    progress = run(engine, 2, Phase(listed, 18, is_pass=True))
    assert [one.prompt == "text" for one in engine.added] == [True, True, False, False, True]
    second, third = engine.added[2:4]
    assert json.loads(second.prompt) == [
        {"role": "user", "content": "text"},
        {"role": "assistant", "content": "01"},
        {"role": "user", "content": "more"},
    ]
    assert [message["content"] for message in json.loads(third.prompt)] == ["text", "01", "more", "200201", "last"]
    # Later turns are outputs of their conversation; the third request takes the stream after the last one.
    first, *others = progress.outputs
    later = (LoadOutput([200, 201], True, second.prompt), LoadOutput([300, 301], True, third.prompt))
    assert first == LoadOutput([0, 1], True, turns=later)
    assert [output.turns for output in others] == [(), ()]
    assert len(progress.ttft) == len(progress.latency) == 5


def test_a_conversation_that_no_longer_fits_ends() -> None:
    engine = MadeUpEngine(easy=1)
    run(engine, 1, Phase((conversation("too long"), request()), 6, is_pass=True))
    assert [one.prompt for one in engine.added] == ["text", "text"]
