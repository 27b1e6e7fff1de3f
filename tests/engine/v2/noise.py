"""Whether V2's block verification tests a position by another random number after an early rejection.

    python -m tests.engine.v2.noise

It prints how many second tokens there were after a rejected first draft, and how many of them were token 0. Each draft
is token 0, and the target's probabilities are 0.5, 0.3 and 0.2 everywhere: half of them are exact.
"""

import json
import os

NUM_REQUESTS, NUM_DRAFTS, POSITION = 400, 2, 100
PROBABILITIES = (0.5, 0.3, 0.2)


def main() -> None:
    """Verifies drafts of two steps of each request."""
    import torch

    if os.environ.get("TRITON_INTERPRET"):
        import vllm.v1.worker.cpu.shm  # noqa: F401 (operators that vLLM's CPU workers register)

        from tests.engine.v2.interpreter import mend

        mend()
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    device = "cuda" if torch.cuda.is_available() else "cpu"
    requests = torch.arange(NUM_REQUESTS, device=device, dtype=torch.int32)
    rows = torch.arange(NUM_DRAFTS + 1, device=device)
    seeds = torch.randint(-(2**62), 2**62, (NUM_REQUESTS,), generator=torch.Generator().manual_seed(0)).to(device)
    temperature = torch.ones(NUM_REQUESTS, device=device)
    logits = torch.tensor(PROBABILITIES, device=device).log().repeat(NUM_REQUESTS * len(rows), 1)

    def first_two(position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first two tokens of a step after the text up to `position`, and the number of tokens."""
        sampled, count = rejection_sample(
            logits.clone(),
            None,
            torch.zeros(len(logits), dtype=torch.int32, device=device),
            torch.arange(0, len(logits) + 1, len(rows), dtype=torch.int32, device=device),
            (position + rows).repeat(NUM_REQUESTS),
            requests,
            requests.repeat_interleave(len(rows)),
            rows.int().repeat(NUM_REQUESTS),
            temperature,
            seeds,
            NUM_DRAFTS,
            use_block_verification=True,
        )
        return sampled[:, :2], count

    (tokens, count), (after, _) = first_two(POSITION), first_two(POSITION + 1)
    rejected = (count == 1) & (tokens[:, 0] != 0)
    print(json.dumps({"after a rejection": int(rejected.sum()), "token 0": int((after[rejected, 0] == 0).sum())}))


if __name__ == "__main__":
    main()
