"""What became of drafts, noted request by request and learned from all at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.arrays import Ints
from vllm_spec_plugin.scheduling.draft_length.turn_codes import CODE_OF, fates
from vllm_spec_plugin.scheduling.draft_length.turn_order import NOBODY
from vllm_spec_plugin.turns import Turns


class Noted(NamedTuple):
    """Steps of n requests, in their order.

    Attributes:
        request_ids: [n], whose; one may be there more than once.
        num_tokens: [n], by which the texts grew.
        fates: [L, 3, n], of each proposer the draft tokens that it was asked for, 0 if its turn did not come; how many
            it gave that were verified; how many of them were kept.
    """

    request_ids: Sequence[str]
    num_tokens: Ints
    fates: Ints


class Outcomes:
    """Takes notes, which costs next to nothing, until they are wanted."""

    def __init__(self, num_lanes: int) -> None:
        """Nothing is noted yet, of so many proposers."""
        self._num_lanes = num_lanes
        self._notes: list[tuple[str, Turns, int, int, int, int]] = []
        self._num_output: dict[str, int] = {}

    def verified(
        self,
        request_id: str,
        turns: Turns,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Notes a step of a request. Proposers that were asked before the one that had a guess had none."""
        grew = accepted + 1
        if num_output_tokens:
            grew = num_output_tokens - self._num_output.get(request_id, num_output_tokens - grew)
            self._num_output[request_id] = num_output_tokens
        self._notes.append((request_id, turns, NOBODY if source is None else source, drafted, accepted, grew))

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request."""
        self._num_output.pop(request_id, None)

    def take(self) -> Noted | None:
        """All notes since the last call; None if there are none."""
        if not self._notes:
            return None
        count = len(self._notes)
        request_ids, turns, sources, drafted, accepted, grew = zip(*self._notes, strict=True)
        self._notes.clear()
        codes = np.fromiter(map(CODE_OF.__getitem__, turns), np.int64, count)
        of_source = np.array([sources, drafted, accepted], np.int64)
        return Noted(
            request_ids,
            np.fromiter(grew, np.int64, count),
            fates(codes, of_source[0], of_source[1], of_source[2], self._num_lanes),
        )
