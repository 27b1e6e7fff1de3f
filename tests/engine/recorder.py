"""Records sources of drafts in a running engine, with the text before: a draft model's logits, Medusa heads' tokens."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

Recorded = list[tuple[list[int], list[float]]]


@contextlib.contextmanager
def recording(share: float) -> Iterator[Recorded]:
    """Records that share of the draft model's outputs, or of the drafts of heads for greedy requests."""
    from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine
    from vllm_spec_plugin.v1.proposers.medusa import MedusaProposer

    recorded: Recorded = []
    original = VllmDraftEngine.constrain
    chance = random.Random(0)

    def constrain(self: Any, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor, *args: Any) -> Any:
        batch = self._runner.input_batch
        for row, context, output in zip(rows.tolist(), drafts.tolist(), logits, strict=True):
            if chance.random() < share:
                text = batch.token_ids_cpu[row, : batch.num_tokens_no_spec[row]].tolist()
                recorded.append((text + context, output.tolist()))
        return original(self, logits, rows, drafts, *args)

    propose = MedusaProposer._draft

    def draft(self: Any, requests: Any) -> Any:
        drafts = propose(self, requests)
        for request, drafted in zip(requests, drafts, strict=True):
            if request.point_mass and chance.random() < share:
                recorded.append((request.token_ids.tolist(), list(drafted.token_ids)))
        return drafts

    with (
        mock.patch.object(VllmDraftEngine, "constrain", constrain),
        mock.patch.object(MedusaProposer, "_draft", draft),
    ):
        yield recorded
