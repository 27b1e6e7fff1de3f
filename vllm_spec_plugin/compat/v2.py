"""vLLM's V2 runner, made to verify drafts whose token ids the scheduler sends."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


def verify_scheduled_drafts(runner: Any, *, keeps_drafter: bool) -> None:
    """Changes a V2 runner that was built with a speculative config, before its model is loaded.

    Args:
        runner: the runner.
        keeps_drafter: whether vLLM's drafter drafts as well; its drafts are verified where the scheduler sends no ids.
    """
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
    if not keeps_drafter:
        runner.speculator = NoDrafts()

    def prepare_inputs(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        # vLLM's own drafts stay on the device, and are placeholders here.
        if given := {name: own for name, own in scheduled.items() if own and own[0] >= 0}:
            _copy(given, runner.req_states.req_id_to_index, drafts)
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
