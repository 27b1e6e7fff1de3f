"""Drafts are accepted while they are what the target samples; outputs do not depend on them."""

from itertools import chain

import torch
from hypothesis import given
from hypothesis import strategies as st

from vllm_spec_plugin.verification.coupled import accept_equal

WIDTH = 4


def expected(sampled: list[int], drafts: list[int]) -> list[int]:
    """The output of a request: tokens up to the first that is no draft, that one included."""
    output = []
    for token, draft in zip(sampled, [*drafts, None], strict=True):
        output.append(token)
        if token != draft:
            break
    return output


@given(st.data())
def test_each_request_gets_its_tokens_up_to_the_first_that_was_not_drafted(data: st.DataObject) -> None:
    tokens = st.integers(0, 2)
    requests = data.draw(st.lists(st.integers(1, WIDTH), min_size=1, max_size=4))
    sampled = [data.draw(st.lists(tokens, min_size=n, max_size=n)) for n in requests]
    # The token that each row follows; what a grammar excludes is -1.
    given_tokens = [data.draw(st.lists(tokens | st.just(-1), min_size=n, max_size=n)) for n in requests]
    starts = torch.tensor([0, *requests]).cumsum(0)
    rows, follows = (torch.tensor([*chain(*of_requests)]) for of_requests in (sampled, given_tokens))
    outputs, counts = accept_equal(rows, follows, starts, WIDTH)
    assert outputs.shape == (len(requests), WIDTH)
    for output, count, mine, drafts in zip(outputs.tolist(), counts.tolist(), sampled, given_tokens, strict=True):
        assert output[:count] == expected(mine, drafts[1:])


def test_a_token_of_the_next_request_is_no_draft() -> None:
    """The last row of "a" samples what the first row of "b" follows."""
    outputs, counts = accept_equal(torch.tensor([7, 8]), torch.tensor([1, 7]), torch.tensor([0, 1, 2]), WIDTH)
    assert counts.tolist() == [1, 1]
    assert outputs[:, 0].tolist() == [7, 8]
