"""V2 samplers that are wrong on purpose."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

_SHARE = 0.2


@contextlib.contextmanager
def keep_some_rejected() -> Iterator[None]:
    """One in five draft tokens that V2's rejection sampler rejects is output nevertheless."""
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler

    sample = rejection_sampler.rejection_sample  # type: ignore[attr-defined]

    def sample_leniently(logits: Any, draft_logits: Any, tokens: Any, starts: Any, *args: Any, **kwargs: Any) -> Any:
        sampled, num_sampled = sample(logits, draft_logits, tokens, starts, *args, **kwargs)
        rejected = (starts[:-1] + num_sampled).long()
        is_kept = (
            (num_sampled > 0) & (rejected < starts[1:]) & (torch.rand(len(rejected), device=rejected.device) < _SHARE)
        )
        # Requests in a prompt, and with fewer drafts, have placeholders.
        is_kept &= tokens[rejected.clamp(max=len(tokens) - 1)] >= 0
        row = is_kept.nonzero()[:, 0]
        sampled[row, num_sampled[row].long() - 1] = tokens[rejected[row]].to(sampled.dtype)
        return sampled, num_sampled

    with mock.patch.object(rejection_sampler, "rejection_sample", sample_leniently):
        yield


@contextlib.contextmanager
def noise_of_the_next_position() -> Iterator[None]:
    """Draft positions are verified with the noise of the position after them."""
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler

    gather = rejection_sampler.gather_draft_sampled

    def gather_shifted(*args: Any) -> Any:
        drafts, positions = gather(*args)
        return drafts, positions + 1

    with mock.patch.object(rejection_sampler, "gather_draft_sampled", gather_shifted):
        yield
