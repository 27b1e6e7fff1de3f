"""vLLM's V2 runner, made to verify drafts as configured, and to sample drafts with the target's noise."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import V2ModelRunner

# Added to positions that block verification names by step: away from positions, and below vLLM's salt of drafts, 2**30.
_STEP_NOISE = 1 << 29

Accept = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def replace_verification(runner: "V2ModelRunner", accept: Accept | None) -> None:
    """Puts a verification in place of that of vLLM, after the model is loaded.

    Chunks, logprobs, grammars and masks stay vLLM's. A rank without a sampler is left alone. With watermarks, which
    have noise of their own, vLLM verifies token by token.

    Args:
        runner: the runner.
        accept: accepts drafts by the tokens that the target samples, see `accept_equal`; None verifies by blocks.

    Raises:
        ValueError: the model has a verification of its own, or blocks would be verified with watermarks.
    """
    # Imported here: the modules need Triton.
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    class OwnDecision(RejectionSampler):
        """Makes its own decision only."""

        def _verify(
            self,
            logits: torch.Tensor,
            draft_logits: torch.Tensor | None,
            draft_sampled: torch.Tensor,
            pos: torch.Tensor,
            cu_num_logits: torch.Tensor,
            idx_mapping: torch.Tensor,
            idx_mapping_np: Any,
            expanded_idx_mapping: torch.Tensor,
            expanded_local_pos: torch.Tensor,
            seq_lens_upper_bound_np: Any,
            verify_draft_sampled: torch.Tensor,
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            processed = self.sampler.apply_sampling_params(
                logits,
                expanded_idx_mapping,
                idx_mapping,
                idx_mapping_np,
                pos,
                draft_sampled,
                expanded_local_pos,
                seq_lens_upper_bound_np,
            )
            states, use_fp64 = self.sampler.sampling_states, self.sampler.use_fp64_gumbel
            if accept is not None:
                sampled = gumbel_sample(
                    processed,
                    expanded_idx_mapping,
                    states.temperature.gpu,
                    states.seeds.gpu,
                    pos,
                    apply_temperature=False,
                    is_drafting=False,
                    use_fp64=use_fp64,
                )
                width = self.num_speculative_steps + 1
                return processed, *accept(sampled, verify_draft_sampled, cu_num_logits.long(), width)
            verdict = rejection_sample(
                processed,
                draft_logits,
                verify_draft_sampled,
                cu_num_logits,
                noise_of_step(pos, expanded_local_pos, self.num_speculative_steps),
                idx_mapping,
                expanded_idx_mapping,
                expanded_local_pos,
                states.temperature.gpu,
                states.seeds.gpu,
                self.num_speculative_steps,
                use_fp64=use_fp64,
                use_block_verification=True,
            )
            return processed, *verdict

    found = runner.rejection_sampler
    if found is None:
        return
    if found.watermark_key is not None:
        if accept is None:
            raise ValueError("verification.method: got block, but outputs have watermarks; allowed: token or coupled")
        return
    if type(found) is not RejectionSampler:
        raise ValueError(f"vLLM verifies this model's drafts with {type(found).__name__}, which is not supported")
    config, sampler = runner.vllm_config.speculative_config, runner.sampler
    assert config is not None
    assert sampler is not None
    runner.rejection_sampler = OwnDecision(sampler, config, runner.device)


def noise_of_step(positions: torch.Tensor, rows: torch.Tensor, max_drafts: int) -> torch.Tensor:
    """Returns names of random numbers that a step has alone, in the shape of `positions`.

    vLLM's block verification hashes seed and position. If a draft ends before the position whose test failed, the next
    step would test that position by the same number.

    Args:
        positions: of the tokens that rows follow.
        rows: number of each row in its request, from 0.
        max_drafts: maximum draft tokens of a request.
    """
    return _STEP_NOISE + (positions - rows) * (max_drafts + 1) + rows


def target_sampling(*, use_fp64: bool) -> Callable[..., torch.Tensor]:
    """Returns V2's sampling of drafts with the target's noise, which depends on seed, position and token alone.

    Args:
        use_fp64: whether noise is computed in double precision, as the target's sampler does.

    Returns:
        A function of logits, [n, vocab_size], before temperature; rows of the requests, [n]; temperatures and seeds by
        row; and the positions before the sampled tokens', [n]. It returns [n] token ids.
    """
    # Imported here: the module needs Triton.
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

    return partial(gumbel_sample, apply_temperature=True, is_drafting=False, use_fp64=use_fp64)


def sample_with_target_noise(speculator: Any) -> None:
    """Replaces a vLLM drafter's sampling by one with the target's noise at the same positions.

    A drafter that only names its likeliest tokens, or draws in a kernel of its own, is left alone.

    Args:
        speculator: the V2 runner's, with its model, before CUDA graphs are captured.
    """
    from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

    is_usual = getattr(type(speculator), "sample_draft", None) is DraftModelSpeculator.sample_draft
    if not is_usual or speculator.use_local_argmax_reduction or speculator.draft_watermarker is not None:
        return
    sample = target_sampling(use_fp64=speculator.use_fp64_gumbel)

    def sample_draft(
        hidden_states: torch.Tensor,
        positions: torch.Tensor,
        idx_mapping: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        *args: Any,
        spec_step_idx: int = 0,
        **kwargs: Any,
    ) -> torch.Tensor:
        logits = speculator.compute_draft_logits(hidden_states, spec_step_idx)
        return sample(logits, idx_mapping, temperature, seeds, positions)

    speculator.sample_draft = sample_draft
