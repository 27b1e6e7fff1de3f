"""A crowd of clients against the mock server."""

import time

from loadtests.acceptance.chaos.crowd import NUM_TOKENS, Crowd
from loadtests.acceptance.chaos.refusals import BadRequest
from loadtests.stream.client import COMPLETIONS
from vllm_spec_plugin.tools.mock_server.options import MockOptions
from vllm_spec_plugin.tools.mock_server.running import MockServer

BAD = [
    BadRequest("negative max_tokens", COMPLETIONS, {"model": "mock", "prompt": "x", "max_tokens": -5}),
    BadRequest("no JSON", COMPLETIONS, b'{"model": '),
]


def has_seen_all(crowd: Crowd) -> bool:
    answered = {answer.prompt for answer in crowd.answers}
    return bool(crowd.left_early and crowd.left_midway) and answered == {0, 1} and len(crowd.refusals) >= len(BAD)


def test_some_stay_some_leave_and_nonsense_is_refused() -> None:
    with MockServer(MockOptions(port=0, ttft_ms=30, itl_ms=1, tokens_per_chunk=2.5)) as mock:
        with Crowd(mock.base_url, "mock", ["def a", "def b"], BAD, seed=0) as crowd:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not has_seen_all(crowd):
                time.sleep(0.05)
        count = len(crowd.answers)
        time.sleep(0.2)
    # Nobody asks any more.
    assert len(crowd.answers) == count
    assert has_seen_all(crowd)
    assert all(not answer.error and len(answer.tokens) == NUM_TOKENS for answer in crowd.answers)
    # The same prompt gets the same text.
    assert len({answer.tokens for answer in crowd.answers}) == 2
    assert set(crowd.refusals) == {(bad.name, 400) for bad in BAD}
