"""Chunks out of events."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.stream.chunks import Chunk, ChunkError, ErrorEvent, Usage, read_event
from loadtests.stream.sse import Event
from tests.sizes import examples


def read(body: object, name: str = "") -> Chunk | ErrorEvent | None:
    return read_event(Event(json.dumps(body), name))


def test_a_completion_tells_text_tokens_usage_and_why_it_ended() -> None:
    choice = {"index": 0, "text": " a", "logprobs": None, "finish_reason": "length", "token_ids": [5, 6]}
    usage = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    assert read({"choices": [choice], "usage": usage}) == Chunk(" a", (5, 6), Usage(3, 8), "length")


def test_a_chat_tells_its_content_or_its_reasoning() -> None:
    for key in ("content", "reasoning", "reasoning_content"):
        assert read({"choices": [{"index": 0, "delta": {key: "a"}}]}) == Chunk("a")


def test_a_chats_first_chunk_is_an_opening_unless_it_says_something() -> None:
    opening = {"role": "assistant", "content": ""}
    assert read({"choices": [{"delta": opening}]}) == Chunk(is_opening=True)
    assert read({"choices": [{"delta": opening | {"content": "a"}}]}) == Chunk("a")
    assert read({"choices": [{"delta": opening, "token_ids": [1]}]}) == Chunk(token_ids=(1,))
    assert read({"choices": [{"delta": opening, "finish_reason": "stop"}]}) == Chunk(finish_reason="stop")


def test_the_last_usage_is_no_part_of_the_text() -> None:
    chunk = read({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 8}})
    assert chunk == Chunk(usage=Usage(3, 8), has_choice=False)


def test_errors_keep_their_message() -> None:
    told = {"message": "out of memory", "type": "InternalServerError", "param": None, "code": 500}
    assert read({"error": told}) == read(told, name="error") == ErrorEvent("out of memory")
    assert read({"error": "no"}) == ErrorEvent("no")
    assert read({"error": {"why": 1}}) == ErrorEvent('{"why": 1}')


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"choices": [{}, {}]}', "n = 1"),
        ('{"choices": [{"index": 1, "text": "a"}]}', "n = 1"),
        ('{"choices": [{"delta": []}]}', r"`delta` is \[\]"),
        ('{"choices": [{"text": "", "token_ids": [true]}]}', "`token_ids`"),
        ('{"choices": [], "usage": {"prompt_tokens": 3}}', "`completion_tokens` is None"),
        ('{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": -1}}', "`completion_tokens` is -1"),
    ],
)
def test_what_no_server_sends_is_refused_with_what_it_was(data: str, said: str) -> None:
    with pytest.raises(ChunkError, match=said) as caught:
        read_event(Event(data))
    assert data[:100] in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "usage", "error", "delta", "text", "token_ids", "index", "role", "code"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200, 5000), deadline=None)
@given(JSON | st.fixed_dictionaries({"choices": st.lists(JSON, max_size=1)}), st.sampled_from(["", "error"]))
def test_no_json_raises_anything_else(body: object, name: str) -> None:
    with suppress(ChunkError):
        read(body, name)
