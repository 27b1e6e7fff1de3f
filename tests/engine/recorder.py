"""What the draft model put out while an engine ran, and after which text."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

Recorded = list[tuple[list[int], list[float]]]


@contextlib.contextmanager
def recording(share: float) -> Iterator[Recorded]:
    """Records that share of the draft model's outputs."""
    from vllm_spec_plugin.worker.draft_engine import VllmDraftEngine

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

    with mock.patch.object(VllmDraftEngine, "constrain", constrain):
        yield recorded
