"""Two servers are asked the same alternately."""

import contextlib
from typing import Any

import pytest

from tests.mock_server import MockOptions, MockServer
from vllm_spec_tools.demo import pairs as module
from vllm_spec_tools.demo.pairs import Pair, ask_in_pairs


class Served(MockServer):
    """A mock server as the demo sees a server."""

    model = "mock"

    def __init__(self) -> None:
        super().__init__(MockOptions(port=0, ttft_ms=1, itl_ms=1, tokens_per_chunk=1))


def asked(servers: list[Served], rounds: int, num_tokens: int, shown: list[Pair], *, chat: bool = False) -> list[Pair]:
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        both: Any = servers[0], servers[-1]
        return ask_in_pairs(both, ["a", "b"], rounds, num_tokens, shown.append, chat)


@pytest.mark.parametrize("chat", [False, True])
def test_each_prompt_is_asked_in_pairs(chat: bool) -> None:
    shown: list[Pair] = []
    pairs = asked([Served(), Served()], 2, 24, shown, chat=chat)
    assert pairs == shown
    assert [pair.prompt for pair in pairs] == [0, 1, 0, 1]
    # The mock's answers are one text for one prompt.
    assert all(pair.plain.tokens == pair.drafted.tokens == 24 and pair.is_identical for pair in pairs)


def test_one_server_is_asked_without_and_with_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    without: list[bool] = []
    ask = module._ask

    def note(client: Any, prompt: str, chat: bool, options: dict[str, Any]) -> Any:
        without.append("extra_body" in options)
        return ask(client, prompt, chat, options)

    monkeypatch.setattr(module, "_ask", note)
    asked([Served()], 1, 4, [])
    # Two warm-ups, then the pairs, whose order alternates.
    assert without == [True, False, True, False, True, False, False, True]
