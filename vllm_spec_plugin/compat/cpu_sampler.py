"""Mends vLLM's sampler on CPUs, where temperature, top-k and top-p of drafted positions are uninitialised memory.

vLLM's emulated kernel fills a copy of its output and drops it (vLLM issue 55005). A worker that has the class below as
its extension imports this module, and then has right values.
"""

import torch
from vllm.v1.sample import rejection_sampler


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


rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens


class MendedSampler:
    """Extends no method; vLLM imports the module of a worker's extension in each worker process."""
