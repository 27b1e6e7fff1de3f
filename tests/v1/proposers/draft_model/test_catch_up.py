"""Draft lengths that slots and contexts allow; test_coverage.py has plans of random steps."""

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import CatchUpLimits, num_draft_tokens


@pytest.mark.parametrize(
    ("num_slots", "max_len", "expected"),
    [
        (100, 1000, 5),
        # The target verifies K drafts behind the text.
        (15, 1000, 5),
        (14, 1000, 4),
        (11, 1000, 1),
        (10, 1000, 0),
        (9, 1000, 0),
        # The draft computes all but the last: positions 10 to 13 for five.
        (100, 14, 5),
        (100, 13, 4),
        (100, 10, 1),
        (100, 9, 0),
        (100, 3, 0),
    ],
)
def test_k_is_cut_to_slots_and_to_the_drafts_context(num_slots, max_len, expected):
    request = RequestView("a", np.arange(10, dtype=np.int32), 5, np.zeros(5), num_slots=num_slots)
    assert num_draft_tokens(request, CatchUpLimits(100, max_len)) == expected
