"""Assigns each request a row of its estimates, so that compiled code finds them, and collects outcomes of drafts."""

from array import array
from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.jit import Floats, Ints

_FIRST_ROWS = 64
_COLUMNS = 6


class RequestRows:
    """Rows and outcomes of requests.

    Attributes:
        effects: [rows, 2 L, 2], see `acceptance.learn`.
        num_output: [rows], output tokens of each request up to which its effects have faded.

    Adding requests may replace the arrays.
    """

    def __init__(self, num_proposers: int) -> None:
        """Starts without requests."""
        self.effects: Floats = np.zeros((_FIRST_ROWS, 2 * num_proposers, 2))
        self.num_output: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self._row_of: dict[str, int] = {}
        self._free = list(range(_FIRST_ROWS))
        # Of requests that ended since outcomes were last taken.
        self._ended: list[int] = []
        self._outcomes = array("q")

    def add(self, request_ids: Sequence[str]) -> Ints:
        """Returns [n], rows of the requests, new ones included; valid until one is forgotten."""
        try:
            return np.fromiter(map(self._row_of.__getitem__, request_ids), np.int64, len(request_ids))
        except KeyError:
            return np.array([self._add_one(request_id) for request_id in request_ids], np.int64)

    def _add_one(self, request_id: str) -> int:
        row = self._row_of.get(request_id)
        if row is None:
            if not self._free:
                num_rows = len(self.effects)
                self._free = list(range(num_rows, 2 * num_rows))
                self.effects = np.concatenate([self.effects, np.zeros_like(self.effects)])
                self.num_output = np.concatenate([self.num_output, np.zeros_like(self.num_output)])
            row = self._row_of[request_id] = self._free.pop()
        return row

    def verified(
        self,
        request_id: str,
        draft_plan: DraftPlan,
        source: int | None,
        drafted: int,
        accepted: int,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Adds a step of a planned request; see `DraftLengthControl.verified`."""
        row = self._row_of.get(request_id)
        if row is None:
            return
        outcomes = self._outcomes
        for proposer, length in draft_plan:
            if proposer == source:
                drafted = min(drafted, length)
                # A tree without branches is verified as a chain, whose accepted nodes are the first ones.
                bits = (1 << accepted) - 1 if nodes is None else sum([1 << node for node in nodes])
                # The 64th bit of an int64 is its sign.
                bits -= bits >> 63 << 64
                outcomes.extend((row, proposer, length, drafted, min(accepted, drafted), bits))
                return
            outcomes.extend((row, proposer, length, 0, 0, 0))

    def take(self) -> Ints:
        """Returns [n, 6], all outcomes since the last call, as `acceptance.learn` takes them."""
        outcomes, self._outcomes = self._outcomes, array("q")
        return np.frombuffer(outcomes, np.int64).reshape(-1, _COLUMNS)

    def forget(self, request_id: str) -> None:
        """Drops a request that ended; its row is free once its outcomes are learned (`free`)."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            self._ended.append(row)

    def free(self) -> None:
        """Clears and frees the rows of requests that ended."""
        if self._ended:
            self.effects[self._ended] = self.num_output[self._ended] = 0
            self._free += self._ended
            self._ended = []
