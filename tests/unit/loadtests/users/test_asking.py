"""One request of a user, and who is told of it. Without Locust: what it is asked for is invented."""

from types import SimpleNamespace
from typing import Any

import pytest

from loadtests.collector import _KEY
from loadtests.load.gauge import Gauge
from loadtests.scenarios.prompts import Prompt
from loadtests.stream.timing import ErrorKind, Measures, StreamRecord
from loadtests.users.asking import ask

PROMPT = Prompt(prompt="a")


class Collected:
    """What a collector is told."""

    def __init__(self) -> None:
        self.model, self.in_flight = "llama", Gauge()
        self.found: list[tuple[str, Measures]] = []

    def add(self, scenario: str, found: Measures) -> None:
        self.found.append((scenario, found))


def environment_of(collected: Collected, fired: list[dict[str, Any]], api_key: str = "") -> Any:
    return SimpleNamespace(
        parsed_options=SimpleNamespace(max_tokens=5, temperature=0.0, api_key=api_key),
        events=SimpleNamespace(request=SimpleNamespace(fire=lambda **told: fired.append(told))),
        **{_KEY: collected},
    )


def test_a_key_that_the_server_repeats_is_told_to_nobody() -> None:
    collected, fired = Collected(), list[dict[str, Any]]()
    refused = StreamRecord(0.0, 0.1, error=ErrorKind.HTTP_4XX, message="wrong key sk-12: get another")
    client: Any = SimpleNamespace(ask=lambda path, body: refused)
    ask(environment_of(collected, fired, api_key="sk-12"), client, "chat", PROMPT)
    assert [(name, found.message) for name, found in collected.found] == [("chat", "wrong key ***: get another")]
    assert str(fired[0]["exception"]) == "http_4xx: wrong key ***: get another"


def test_a_request_is_in_flight_until_it_is_answered_or_given_up() -> None:
    collected = Collected()
    seen: list[int] = []

    def answer(path: str, body: dict[str, Any]) -> StreamRecord:
        seen.append(collected.in_flight.changes[-1][1])
        if len(seen) == 2:
            raise SystemExit
        return StreamRecord(0.0, 0.1)

    client: Any = SimpleNamespace(ask=answer)
    ask(environment_of(collected, []), client, "chat", PROMPT)
    # As a user is who is stopped.
    with pytest.raises(SystemExit):
        ask(environment_of(collected, []), client, "chat", PROMPT)
    assert seen == [1, 1]
    assert [number for _, number in collected.in_flight.changes] == [1, 0, 1, 0]
    assert len(collected.found) == 1
