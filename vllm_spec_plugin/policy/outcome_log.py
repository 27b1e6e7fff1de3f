"""Collects outcomes of drafts by request, for one update of the models per plan."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.jit import Ints

# Rows of `Outcomes.of_proposers`.
ASKED, DRAFTED, ACCEPTED = range(3)


def plans_of(lengths: Ints, proposers: Ints) -> list[DraftPlan]:
    """Returns each request's draft plan as tuples.

    Args:
        lengths: [n, L], draft tokens per place in the plan; 0 is none.
        proposers: [n, L], proposer per place.
    """
    rows = zip(proposers.tolist(), lengths.tolist(), strict=True)
    return [tuple([planned for planned in zip(*row, strict=True) if planned[1]]) for row in rows]


class Outcomes(NamedTuple):
    """Outcomes of n steps of requests, in their order.

    Attributes:
        request_ids: [n], ids of the requests; one may occur more than once.
        num_tokens: [n], number of output tokens.
        of_proposers: [L, 3, n], per proposer the planned (0 if it was not asked), verified and accepted draft tokens.
        nodes: [n], of trees, bit i is whether node i was accepted.
    """

    request_ids: Sequence[str]
    num_tokens: Ints
    of_proposers: Ints
    nodes: Ints


class OutcomeNotes:
    """Collects outcomes until they are taken."""

    def __init__(self, num_proposers: int) -> None:
        """Starts without notes."""
        self._num_proposers = num_proposers
        self._request_ids: list[str] = []
        # Per note: output tokens, nodes, and the rows of `Outcomes.of_proposers`.
        self._rows: list[list[int]] = []
        self._num_output: dict[str, int] = {}

    def verified(
        self,
        request_id: str,
        draft_plan: DraftPlan,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Adds a step of a request; see `DraftLengthControl.verified`."""
        num_tokens = accepted + 1
        if num_output_tokens:
            # Steps without drafts are not recorded one by one.
            num_tokens = num_output_tokens - self._num_output.get(request_id, num_output_tokens - num_tokens)
            self._num_output[request_id] = num_output_tokens
        # A tree without branches is verified as a chain, whose accepted nodes are the first ones.
        bits = (1 << accepted) - 1 if nodes is None else sum([1 << node for node in nodes])
        # The 64th bit of an int64 is its sign.
        row = [num_tokens, bits - (bits >> 63 << 64), *[0] * (3 * self._num_proposers)]
        for proposer, length in draft_plan:
            at = 2 + 3 * proposer
            row[at + ASKED] = length
            if proposer == source:
                row[at + DRAFTED] = drafted = min(drafted, length)
                row[at + ACCEPTED] = min(accepted, drafted)
                break
        self._request_ids.append(request_id)
        self._rows.append(row)

    def forget(self, request_id: str) -> None:
        """Drops the state of a request."""
        self._num_output.pop(request_id, None)

    def take(self) -> Outcomes | None:
        """Returns all outcomes since the last call; None without any."""
        if not self._rows:
            return None
        request_ids, table = self._request_ids, np.array(self._rows, np.int64).T.copy()
        self._request_ids, self._rows = [], []
        return Outcomes(request_ids, table[0], table[2:].reshape(self._num_proposers, 3, -1), table[1])
