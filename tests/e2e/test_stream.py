"""Tests a server that sends tokens in groups of one size, as a client sees it."""

import itertools

import openai
import pytest

from tests.e2e.conftest import GROUP, connect
from tests.e2e.test_serve import complete
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

NUM_TOKENS = 48
USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.fixture(scope="module")
def fixed(grouped: Server) -> openai.OpenAI:
    """A client of the server that groups; `client` is of one that does not."""
    return connect(grouped)


def stream(client, model, **options):
    """The chunks of a streamed completion that have a choice."""
    options = {"max_tokens": NUM_TOKENS, "extra_body": {"ignore_eos": True}, **options}
    chunks = complete(client, model, stream=True, stream_options=USAGE, **options)
    return [chunk for chunk in chunks if chunk.choices]


def text_of(chunks):
    return "".join(chunk.choices[0].text for chunk in chunks)


def sizes_of(chunks):
    """Counts the tokens of each chunk."""
    counts = [0, *(chunk.usage.completion_tokens for chunk in chunks)]
    return [after - before for before, after in itertools.pairwise(counts)]


def test_chunks_have_one_size_and_the_text_is_the_same(client, fixed, model):
    """But for the last one. A frontend that lags behind may send two groups at once."""
    free, grouped = stream(client, model), stream(fixed, model)
    assert text_of(grouped) == text_of(free)
    assert sum(sizes_of(grouped)) == sum(sizes_of(free)) == NUM_TOKENS
    *groups, rest = sizes_of(grouped)
    assert len(groups) >= 4
    assert all(size and size % GROUP == 0 for size in groups)
    assert rest > 0
    # Else nothing would have been tested.
    assert len(set(sizes_of(free)[:-1])) > 1


def test_every_token_has_its_logprobs(client, fixed, model):
    whole = complete(client, model, logprobs=2, max_tokens=NUM_TOKENS, extra_body={"ignore_eos": True})
    expected = whole.choices[0].logprobs
    chunks = [chunk.choices[0].logprobs for chunk in stream(fixed, model, logprobs=2)]
    assert [token for chunk in chunks for token in chunk.tokens] == expected.tokens
    assert [value for chunk in chunks for value in chunk.token_logprobs] == pytest.approx(
        expected.token_logprobs, abs=1e-3
    )
    assert [list(top) for chunk in chunks for top in chunk.top_logprobs] == [list(top) for top in expected.top_logprobs]
