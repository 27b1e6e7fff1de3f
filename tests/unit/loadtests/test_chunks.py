"""Chunks out of the bytes of a stream."""

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.stream.chunks import ChunkError, ErrorEvent, EventParser, StreamChunk, Usage, read_event
from tests.sizes import examples

STREAM = b": ping\n\nevent: x\r\ndata: {\r\ndata:   }\r\nid: 7\r\n\r\ndata:tight\n\ndata: [DONE]\n\n"
STREAM = b'data: {"text":" p\xe8\xaa\x9e\xc3\xa9"}\n\n' + STREAM
EVENTS = ['{"text":" p語é"}', "{\n  }", "tight", "[DONE]"]


def read(body: object) -> StreamChunk | ErrorEvent | None:
    return read_event(json.dumps(body))


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=8))
def test_events_do_not_depend_on_how_their_bytes_are_cut(cuts: list[int]) -> None:
    places, parser = [0, *sorted(cuts), len(STREAM)], EventParser()
    assert [event for begin, end in pairwise(places) for event in parser.feed(STREAM[begin:end])] == EVENTS


def test_an_event_is_given_out_as_soon_as_its_empty_line_has_come() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\r\n\r") == []
    assert parser.feed(b"\ndata: b\n") == ["a"]
    assert parser.feed(b"\n") == ["b"]


def test_a_completion_tells_text_tokens_usage_and_why_it_ended() -> None:
    choice = {"index": 0, "text": " a", "logprobs": None, "finish_reason": "length", "token_ids": [5, 6]}
    usage = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    assert read({"choices": [choice], "usage": usage}) == StreamChunk(" a", (5, 6), Usage(3, 8), "length")


def test_a_chat_tells_its_content_or_its_reasoning() -> None:
    for key in ("content", "reasoning", "reasoning_content"):
        assert read({"choices": [{"index": 0, "delta": {key: "a"}}]}) == StreamChunk("a")


def test_a_chats_first_chunk_is_an_opening_unless_it_says_something() -> None:
    opening = {"role": "assistant", "content": ""}
    assert read({"choices": [{"delta": opening}]}) == StreamChunk(is_opening=True)
    assert read({"choices": [{"delta": opening | {"content": "a"}}]}) == StreamChunk("a")
    assert read({"choices": [{"delta": opening, "token_ids": [1]}]}) == StreamChunk(token_ids=(1,))
    assert read({"choices": [{"delta": opening, "finish_reason": "stop"}]}) == StreamChunk(finish_reason="stop")


def test_the_last_usage_is_no_part_of_the_text() -> None:
    chunk = read({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 8}})
    assert chunk == StreamChunk(usage=Usage(3, 8), has_choice=False)


def test_errors_keep_their_message() -> None:
    told = {"message": "out of memory", "type": "InternalServerError", "param": None, "code": 500}
    assert read({"error": told}) == ErrorEvent("out of memory")
    assert read({"error": "no"}) == ErrorEvent("no")
    assert read({"error": {"why": 1}}) == ErrorEvent('{"why": 1}')


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "event"),
        ("{}", "no choices"),
        ('{"choices": [{}, {}]}', "choices"),
        ('{"choices": [{"index": 1, "text": "a"}]}', "index"),
        ('{"choices": [{"delta": []}]}', "delta"),
        ('{"choices": [{"text": "", "token_ids": [true]}]}', "token_ids"),
        ('{"choices": [], "usage": {"prompt_tokens": 3}}', "completion_tokens"),
        ('{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": -1}}', "completion_tokens"),
    ],
)
def test_what_no_server_sends_is_refused_with_what_it_was(data: str, said: str) -> None:
    with pytest.raises(ChunkError, match=said) as caught:
        read_event(data)
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
@given(JSON | st.fixed_dictionaries({"choices": st.lists(JSON, max_size=1)}))
def test_no_json_raises_anything_else(body: object) -> None:
    with suppress(ChunkError):
        read(body)
