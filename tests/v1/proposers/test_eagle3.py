"""Which requests a head drafts for, by the hidden states of their texts."""

from types import SimpleNamespace

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage
from vllm_spec_plugin.v1.proposers.draft_model.proposer import DraftModelProposer
from vllm_spec_plugin.v1.proposers.eagle3 import Eagle3Proposer

LENGTH = 10


@pytest.mark.parametrize(
    ("span", "in_prompt", "drafted"),
    [
        ((0, 9), False, (9, 4)),
        ((3, 9), False, (9, 0)),
        # Beyond the head's context, or states of the newest tokens are lost.
        ((0, 8), False, (8, 0)),
        ((0, 0), False, (0, 0)),
        ((0, 6), True, (6, 4)),
    ],
)
def test_a_request_is_drafted_for_where_all_of_its_states_are_kept(
    span: tuple[int, int], in_prompt: bool, drafted: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expected are the length of the head's text and the draft length; nothing is computed yet."""
    seen: list[RequestView] = []
    monkeypatch.setattr(DraftModelProposer, "propose", lambda self, requests: seen.extend(requests))
    engine = SimpleNamespace(
        coverage=DraftCoverage(8, [4]),
        max_len=99,
        block_tables=lambda row: [np.arange(8, dtype=np.int32)],
        states=SimpleNamespace(span=lambda request_id: span),
    )
    proposer = Eagle3Proposer(engine, samples=True, catch_up_tokens=99)
    text = np.arange(LENGTH, dtype=np.int32)
    proposer.propose([RequestView("a", text, 4, np.empty(4), num_slots=99, in_prompt=in_prompt)])
    [view] = seen
    assert (len(view.token_ids), view.num_draft_tokens) == drafted
