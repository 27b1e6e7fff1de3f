"""Patches vLLM's V1 sampler on CPUs; a worker that has the class below as its extension imports this module.

Three faults: temperature, top-k and top-p of draft positions are uninitialised memory, as the emulated kernel fills a
copy of its output (vLLM issue 55005); top-k raises in steps that verify no draft; and a request with a seed whose
prompt is computed in chunks raises, as a CPU's generator has no offset to set back.
"""

from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.sample import rejection_sampler
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from vllm_spec_plugin.compat.patching import wrap
from vllm_spec_plugin.compat.runner import without_generators


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> torch.Tensor:
    """Returns [num_tokens], each request's value once per token, as vLLM's function of that name.

    Args:
        x: [batch_size], a value per request.
        cu_num_tokens: [batch_size], cumulative number of tokens.
        num_tokens: number of tokens of all requests.
        replace_from: value that is replaced.
        replace_to: its replacement.
    """
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    replaced = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return replaced.repeat_interleave(counts.long(), output_size=num_tokens)


def apply_sampling_constraints(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Does as vLLM's function of that name, also without draft positions: [0, vocab_size]."""
    return _apply_sampling_constraints(logits, *args, **kwargs) if len(logits) else logits


def keeping_generators(sample: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a runner's method `_sample`: what it draws for unfinished prompts, and drops, is drawn again later."""

    def kept(runner: Any, *args: Any, **kwargs: Any) -> Any:
        generators, unfinished = runner.input_batch.generators, runner.discard_request_mask.np
        before = {row: generator.get_state() for row, generator in generators.items() if unfinished[row]}
        output = sample(runner, *args, **kwargs)
        for row, state in before.items():
            generators[row].set_state(state)
        return output

    return kept


def _without_generators(bookkeeping_sync: Callable[..., Any]) -> Callable[..., Any]:
    def booked(runner: Any, *args: Any, **kwargs: Any) -> Any:
        with without_generators(runner):
            return bookkeeping_sync(runner, *args, **kwargs)

    return booked


_apply_sampling_constraints = rejection_sampler.apply_sampling_constraints
rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens
rejection_sampler.apply_sampling_constraints = apply_sampling_constraints
wrap(CPUModelRunner, "_sample", keeping_generators)
wrap(CPUModelRunner, "_bookkeeping_sync", _without_generators)


class PatchedSampler:
    """Extends no method; vLLM imports the module of a worker's extension in each worker process."""
