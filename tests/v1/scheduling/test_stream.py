"""vLLM's outputs, regrouped: nothing is lost, and every token keeps its logprobs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.outputs import LogprobsLists
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from tests.sizes import examples
from tests.unit.scheduling.cases import FULL, prompt, request
from tests.v1.scheduling import steps
from vllm_spec_plugin.compat.kv_cache import RequestStatus
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.scheduling.stream import GroupedStream, SingleTokens, StreamGroups

SETTINGS = settings(max_examples=examples(60, 1000), deadline=None)
SIZE = 5


def logprobs_of(token_ids, width):
    """Rows that can be told from each other: the token, then `width` others; ranks and logprobs made from it."""
    ids = np.array([[token_id, *range(token_id + 1, token_id + 1 + width)] for token_id in token_ids], np.int32)
    ids = ids.reshape(len(token_ids), width + 1)
    return LogprobsLists(ids, -ids.astype(np.float32), np.array([7 * token_id for token_id in token_ids], np.int64))


def output_of(token_ids, request_id="a", **more):
    return EngineCoreOutput(request_id, list(token_ids), **more)


def leave(stream, *outputs):
    """Returns the outputs that remain of a step."""
    answer = EngineCoreOutputs(outputs=list(outputs))
    stream.regroup({0: answer})
    return answer.outputs


@st.composite
def cuttings(draw):
    """A request's tokens in steps, each with the width of its logprobs: that of the widest request in the batch."""
    counts = draw(st.lists(st.integers(1, SIZE), min_size=1, max_size=20))
    tokens = itertools.count(100)
    return [([next(tokens) for _ in range(count)], draw(st.integers(2, 5))) for count in counts]


@given(cuttings())
@SETTINGS
def test_every_token_keeps_its_logprobs(cutting):
    stream, seen = GroupedStream(SIZE), []
    for number, (token_ids, width) in enumerate(cutting, start=1):
        reason = FinishReason.STOP if number == len(cutting) else None
        output = output_of(token_ids, new_logprobs=logprobs_of(token_ids, width), finish_reason=reason)
        for group in leave(stream, output):
            assert reason is not None or len(group.new_token_ids) == SIZE
            # As the frontend gets them.
            group = MsgpackDecoder(EngineCoreOutput).decode(MsgpackEncoder().encode(group))
            rows = group.new_logprobs
            assert len(rows.logprobs) == len(rows.sampled_token_ranks) == len(group.new_token_ids)
            for token_id, ids, values, rank in zip(group.new_token_ids, *rows[:3], strict=True):
                # This request asked for 2; the rest is other requests', or vLLM's filling.
                assert ids[:3].tolist() == [token_id, token_id + 1, token_id + 2]
                assert values[:3].tolist() == [-token_id, -token_id - 1, -token_id - 2]
                assert set(values[ids == 0].tolist()) <= {-np.inf}
                assert rank == 7 * token_id
            seen += group.new_token_ids
    assert seen == [token_id for token_ids, _ in cutting for token_id in token_ids]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, SIZE), st.booleans()), max_size=40))
@SETTINGS
def test_groups_leave_as_soon_as_they_are_whole_whatever_other_requests_do(steps):
    """A request that ends may come again, and starts from nothing."""
    groups: StreamGroups[tuple[str, int, int]] = StreamGroups(SIZE)
    held: dict[str, list[tuple[str, int, int]]] = {name: [] for name in "abc"}
    for number, (name, count, is_last) in enumerate(steps):
        tokens = [(name, number, i) for i in range(count)]
        held[name] += tokens
        size = len(held[name]) if is_last else len(held[name]) // SIZE * SIZE
        assert list(groups.release(name, tokens, is_last=is_last)) == held[name][:size]
        del held[name][:size]


def test_what_is_said_beside_tokens_goes_with_the_first_group_and_once():
    stream = GroupedStream(SIZE)
    stats, first, second = PrefillStats(), *(EngineCoreEvent.new_event(kind) for kind in list(EngineCoreEventType)[:2])
    scores = object()
    assert leave(stream, output_of([1], prefill_stats=stats, events=[first], prompt_token_id_logprobs=scores)) == []
    assert leave(stream, output_of([2, 3], events=[second])) == []
    [group] = leave(stream, output_of([4, 5, 6], trace_headers={"a": "b"}))
    assert group.new_token_ids == [1, 2, 3, 4, 5]
    assert (group.prefill_stats, group.prompt_token_id_logprobs) == (stats, scores)
    assert group.events == [first, second]
    assert group.trace_headers == {"a": "b"}
    [rest] = leave(stream, output_of([7], finish_reason=FinishReason.STOP, stop_reason=7))
    assert rest.new_token_ids == [6, 7]
    assert (rest.prefill_stats, rest.events, rest.prompt_token_id_logprobs) == (None, None, None)
    assert rest.stop_reason == 7


@pytest.fixture
def core(monkeypatch):
    """One with `stream_granularity: fixed`."""
    config = steps.vllm_config()
    plugin = config.additional_config[KEY]
    # As a file says it: the size follows from the draft length.
    given = {key: value for key, value in plugin["config"].items() if key != "stream_tokens"}
    given["stream_granularity"] = "fixed"
    config.additional_config = {**config.additional_config, KEY: {**plugin, "config": given}}
    monkeypatch.setattr(steps, "vllm_config", lambda: config)
    return steps.Core(40, FULL, reserves=False)


def test_nothing_is_kept_of_a_request_that_was_aborted(core):
    """Another one may come under its name."""
    core.scheduler.add_request(request("a", prompt(1, 7)))
    core.step()
    core.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    core.step()
    again = request("a", prompt(2, 6), max_tokens=3)
    core.scheduler.add_request(again)
    while core.scheduler.requests:
        core.step()
    [output] = [output for step in core.left for output in step]
    assert output.new_token_ids == list(again.output_token_ids)
    assert len(output.new_token_ids) == 3


@given(cuttings())
@SETTINGS
def test_single_tokens_keep_their_logprobs(cutting):
    for tokens, width in cutting:
        parts = leave(SingleTokens(), output_of(tokens, new_logprobs=logprobs_of(tokens, width)))
        assert [part.new_token_ids for part in parts] == [[token] for token in tokens]
        for part, token in zip(parts, tokens, strict=True):
            np.testing.assert_array_equal(part.new_logprobs.logprob_token_ids, logprobs_of([token], width)[0])
