"""vLLM's V2 runner, made to verify drafts whose token ids the scheduler sends, and to draft nothing itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


def verify_scheduled_drafts(runner: Any) -> None:
    """Changes a V2 runner that was built with a speculative config, before its model is loaded."""
    # Imported here: the module needs Triton.
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

    class NoDrafts(BaseSpeculator):
        """Takes the place of vLLM's drafter."""

        supports_mm_inputs = False
        draft_logits = model = None

        def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
            """Needs no CUDA graphs."""

        def capture(self) -> None:
            """Needs no CUDA graphs."""

        def propose(self, input_batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            """Returns [num_reqs, K] int64; the scheduler drafts in its place."""
            return drafts.new_zeros(input_batch.num_reqs, drafts.shape[1])

    drafts, prepare = runner.req_states.draft_tokens, runner.prepare_inputs
    runner.speculator = NoDrafts()

    def prepare_inputs(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if scheduled := scheduler_output.scheduled_spec_decode_tokens:
            _copy(scheduled, runner.req_states.req_id_to_index, drafts)
        return prepare(scheduler_output, *args, **kwargs)

    runner.prepare_inputs = prepare_inputs


def _copy(scheduled: Mapping[str, Sequence[int]], row_of: Mapping[str, int], drafts: torch.Tensor) -> None:
    """Copies draft tokens to their requests' rows of `drafts`, [max_num_reqs, K], by one transfer."""
    rows = [row_of[request_id] for request_id in scheduled]
    tokens = np.zeros((len(rows), 1 + drafts.shape[1]), np.int64)
    tokens[:, 0] = rows
    for line, own in zip(tokens, scheduled.values(), strict=True):
        line[1 : 1 + len(own)] = own
    packed = torch.from_numpy(tokens).to(drafts.device, non_blocking=True)
    drafts[packed[:, 0]] = packed[:, 1:].to(drafts.dtype)
