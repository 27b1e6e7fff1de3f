"""An estimate that is told of requests by their names, one at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceEstimate
from vllm_spec_plugin.scheduling.draft_length.acceptance_counts import chances
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats
from vllm_spec_plugin.scheduling.draft_length.request_rows import NO_ROW, RequestRows


class OneByOne:
    """An `AcceptanceEstimate` with rows of its own, or shared ones."""

    def __init__(self, num_positions: int, requests: RequestRows | None = None, **options: Any) -> None:
        self.requests = requests or RequestRows()
        self.estimate = AcceptanceEstimate(num_positions, self.requests, **options)

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """A draft was verified."""
        self._learn(request_id, drafted, accepted, 0)

    def advance(self, request_id: str, num_tokens: int) -> None:
        """A text grew; of a request that nothing is known of nothing fades."""
        if self.requests.find([request_id])[0] != NO_ROW:
            self._learn(request_id, 0, 0, num_tokens)

    def forget(self, request_id: str) -> None:
        """A request ended."""
        self.requests.forget(request_id)

    def rates(self, request_ids: Sequence[str]) -> Floats:
        """[len(request_ids), num_positions]: a[r, i]."""
        products = chances(*self.estimate.state, self.requests.find(request_ids))
        products[:, 1:] /= products[:, :-1].copy()
        return products

    @property
    def prior(self) -> Floats:
        """[num_positions]."""
        return self.estimate.prior

    def _learn(self, request_id: str, *of_step: int) -> None:
        self.estimate.learn(self.requests.add([request_id]), *(np.array([value]) for value in of_step))
