"""vLLM's V2 runner, made to verify the plugin's drafts: token ids that the scheduler sends, or those of heads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_spec_plugin.compat.v2_verification import target_sampling

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import SchedulerOutput, V2InputBatch, V2ModelRunner

DraftFromStates = Callable[[torch.Tensor, int], torch.Tensor]
"""Returns [K, num_reqs, vocab_size] logits of drafts after hidden states, [num_reqs, hidden_size], and K."""


def verify_own_drafts(
    runner: "V2ModelRunner",
    draft: DraftFromStates | None = None,
    *,
    shares_noise: bool = False,
    keeps_drafter: bool = False,
) -> None:
    """Changes a V2 runner that was built with a speculative config, before its model is loaded.

    Drafts whose token ids the scheduler sends take the place of a drafter's.

    Args:
        runner: the runner.
        draft: drafts after the states from which the last tokens were sampled; None drafts nothing.
        shares_noise: whether drafts are sampled with the target's noise; else they are the likeliest tokens.
        keeps_drafter: whether vLLM's drafter drafts in its place.
    """
    # Imported here: the module needs Triton.
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

    class OwnDrafts(BaseSpeculator):
        """Takes the place of vLLM's drafter."""

        supports_mm_inputs = False
        draft_logits = model = None

        def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
            """Needs no CUDA graphs."""

        def capture(self) -> None:
            """Needs no CUDA graphs."""

        @torch.inference_mode()
        def propose(
            self,
            input_batch: "V2InputBatch",
            attn_metadata: Any,
            slot_mappings: Any,
            last_hidden_states: torch.Tensor,
            aux_hidden_states: Any,
            num_sampled: torch.Tensor,
            num_rejected: torch.Tensor,
            last_sampled: torch.Tensor,
            next_prefill_tokens: torch.Tensor,
            temperature: torch.Tensor,
            seeds: torch.Tensor,
            *args: Any,
            num_speculative_tokens: int | None = None,
            **kwargs: Any,
        ) -> torch.Tensor:
            """Returns [num_reqs, K] int64, in which zeros follow what was asked for."""
            count = input_batch.num_reqs
            found = drafts.new_zeros(count, drafts.shape[1])
            length = drafts.shape[1] if num_speculative_tokens is None else num_speculative_tokens
            if draft is not None and length:
                last = (input_batch.query_start_loc[1 : count + 1] - 1 - num_rejected[:count]).long().clamp(min=0)
                logits = draft(last_hidden_states[last], length)
                if shares_noise:
                    # vLLM names noise by the position before a token's.
                    positions = input_batch.positions[last] + torch.arange(1, length + 1, device=last.device)[:, None]
                    rows = input_batch.idx_mapping[:count].repeat(length)
                    tokens = sample(logits.flatten(0, 1), rows, temperature, seeds, positions.flatten())
                    found[:, :length] = tokens.view(length, count).T
                else:
                    found[:, :length] = logits.argmax(-1).T
            return found

    sample = target_sampling(use_fp64=runner.model_config.use_fp64_gumbel)
    drafts, prepare = runner.req_states.draft_tokens, runner.prepare_inputs
    if not keeps_drafter:
        runner.speculator = OwnDrafts()

    def prepare_inputs(scheduler_output: "SchedulerOutput", *args: Any, **kwargs: Any) -> "V2InputBatch":
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        # vLLM's own drafts stay on the device, and are placeholders here.
        if given := {name: own for name, own in scheduled.items() if own and own[0] >= 0}:
            _copy(given, runner.req_states.req_id_to_index, drafts)
        return prepare(scheduler_output, *args, **kwargs)

    runner.prepare_inputs = prepare_inputs  # type: ignore[method-assign] # vLLM calls the runner's own


def _copy(scheduled: Mapping[str, Sequence[int]], row_of: Mapping[str, int], drafts: torch.Tensor) -> None:
    """Copies draft tokens to their requests' rows of `drafts`, [max_num_reqs, K], by one transfer."""
    rows = [row_of[request_id] for request_id in scheduled]
    tokens = np.zeros((len(rows), 1 + drafts.shape[1]), np.int64)
    tokens[:, 0] = rows
    for line, own in zip(tokens, scheduled.values(), strict=True):
        line[1 : 1 + len(own)] = own
    packed = torch.from_numpy(tokens).to(drafts.device, non_blocking=True)
    drafts[packed[:, 0]] = packed[:, 1:].to(drafts.dtype)
