"""Names of V2's random numbers."""

import torch

from vllm_spec_plugin.compat.v2_verification import noise_of_step

K, SALT_OF_DRAFTS = 4, 1 << 30


def test_no_two_rows_of_any_steps_share_a_random_number() -> None:
    """A step may begin at any position, with up to K drafts; vLLM adds its salt to the names of drafts' noise."""
    starts, rows = torch.arange(2000)[:, None], torch.arange(K + 1)
    names = noise_of_step(starts + rows, rows.expand(2000, -1), K).flatten()
    assert len(names.unique()) == len(names)
    assert names.min() > 2**28
    assert noise_of_step(torch.tensor(8_000_000), torch.tensor(64), 64) < SALT_OF_DRAFTS
