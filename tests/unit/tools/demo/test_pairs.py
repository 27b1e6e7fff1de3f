"""Two servers are asked the same alternately."""

from typing import Any

import pytest

from tests.mock_server import MockOptions, MockServer
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.demo.answers import ask
from vllm_spec_tools.demo.pairs import Servers, ask_in_pairs, running


class Served:
    """A mock server as the demo sees a server.

    Attributes:
        model: its name.
        events: starts and ends of all servers.
    """

    model = "mock"

    def __init__(self, itl_ms: float, tokens_per_chunk: float, events: list[str], fault: str = "") -> None:
        options = MockOptions(port=0, ttft_ms=1, itl_ms=itl_ms, tokens_per_chunk=tokens_per_chunk)
        self._mock, self.events, self._fault = MockServer(options), events, fault

    @property
    def base_url(self) -> str:
        return self._mock.base_url

    def cpu_seconds(self) -> float:
        return 0.0

    def start(self) -> None:
        if self._fault:
            raise RuntimeError(self._fault)
        self._mock.start()
        self.events.append("start")

    def stop(self, keep_log: bool = False) -> None:
        self._mock.stop()
        self.events.append("stop, log kept" if keep_log else "stop")


# Never waits: what it repeats is tested with it.
GATE = NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)


def test_each_prompt_is_asked_in_pairs() -> None:
    events: list[str] = []
    servers = Servers(Served(4, 1, events), Served(4, 2, events))  # type: ignore[arg-type]
    shown: list[object] = []
    with running(servers):
        pairs = ask_in_pairs(servers, ["a", "b"], 2, 24, GATE, shown.append)
    assert events == ["start", "start", "stop", "stop"]
    assert pairs == shown
    assert [pair.prompt for pair in pairs] == [0, 1, 0, 1]
    assert all(pair.plain.tokens == pair.drafted.tokens == 24 for pair in pairs)
    # The mock's answers are one text for one prompt, and come in chunks of one and of two tokens.
    assert all(pair.is_identical for pair in pairs)
    assert all(len(pair.plain.pieces) > 1.5 * len(pair.drafted.pieces) for pair in pairs)


def test_one_server_is_asked_without_and_with_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def note(*arguments: Any, chat: bool, drafts_off: bool) -> Any:
        asked.append(drafts_off)
        return ask(*arguments, chat=chat)

    monkeypatch.setattr("vllm_spec_tools.demo.pairs.ask", note)
    events: list[str] = []
    server = Served(1, 1, events)
    with running(servers := Servers(server, server)):  # type: ignore[arg-type]
        ask_in_pairs(servers, ["a", "b"], 1, 4, GATE, lambda pair: None)
    assert events == ["start", "stop"]
    # Two warm-ups, then the pairs, whose order alternates.
    assert asked == [True, False, True, False, True, False, False, True]


def test_a_chat_model_is_asked_as_a_user_does() -> None:
    with running(servers := Servers(Served(1, 1, []), Served(1, 1, []))):  # type: ignore[arg-type]
        (pair,) = ask_in_pairs(servers, ["Why?"], 1, 4, GATE, lambda pair: None, chat=True)
    assert pair.plain.tokens == pair.drafted.tokens == 4
    assert pair.is_identical


def test_both_servers_end_where_one_does_not_start() -> None:
    events: list[str] = []
    servers = Servers(Served(1, 1, events), Served(1, 1, events, fault="no memory"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no memory"), running(servers):
        raise AssertionError("one is not running")
    assert events.count("stop, log kept") >= 2
    assert "stop" not in events
