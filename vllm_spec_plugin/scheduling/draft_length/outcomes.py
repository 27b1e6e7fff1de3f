"""What became of drafts, noted request by request and learned from all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.control import Fate
from vllm_spec_plugin.scheduling.draft_length.request_rows import Ints


@dataclass(frozen=True)
class Noted:
    """Steps of n requests, in their order.

    Attributes:
        request_ids: [n], whose; one may be there more than once.
        num_tokens: [n], by which the texts grew.
        asked: [L, n], draft tokens that each proposer was asked for; 0 if its turn did not come.
        drafted: [L, n], how many it gave that were verified.
        accepted: [L, n], how many of them were kept.
    """

    request_ids: Sequence[str]
    num_tokens: Ints
    asked: Ints
    drafted: Ints
    accepted: Ints


class Outcomes:
    """Takes notes, which costs next to nothing, until they are wanted."""

    def __init__(self, num_lanes: int) -> None:
        """Nothing is noted yet, of so many proposers."""
        self._num_lanes = num_lanes
        self._request_ids: list[str] = []
        self._num_tokens: list[int] = []
        # Asked, drafted and accepted, of each proposer, note by note.
        self._fates: list[int] = []
        self._no_fate = [0] * (3 * num_lanes)

    def verified(self, request_id: str, fate: Fate) -> None:
        """Notes a draft. Proposers that were asked before the one that had a guess had none."""
        noted = self._no_fate.copy()
        for lane, length in fate.turns:
            noted[3 * lane] = length
            if lane == fate.source:
                drafted = min(fate.drafted, length)
                noted[3 * lane + 1], noted[3 * lane + 2] = drafted, min(fate.accepted, drafted)
                break
        self._request_ids.append(request_id)
        self._num_tokens.append(0)
        self._fates += noted

    def advance(self, request_id: str, num_tokens: int) -> None:
        """Notes that a text grew."""
        if self._request_ids and self._request_ids[-1] == request_id:
            self._num_tokens[-1] += num_tokens
            return
        self._request_ids.append(request_id)
        self._num_tokens.append(num_tokens)
        self._fates += self._no_fate

    def take(self) -> Noted | None:
        """All notes since the last call; None if there are none."""
        if not self._request_ids:
            return None
        fates = np.array(self._fates, np.int64).reshape(-1, self._num_lanes, 3)
        asked, drafted, accepted = np.ascontiguousarray(fates.T)
        noted = Noted(self._request_ids, np.array(self._num_tokens, np.int64), asked, drafted, accepted)
        self._request_ids, self._num_tokens, self._fates = [], [], []
        return noted
