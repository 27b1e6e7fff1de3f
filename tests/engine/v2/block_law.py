"""Block verification on tensors, by vLLM's V2 kernels: counts of outputs, as JSON.

One process, `python -m tests.engine.v2.block_law N`, with Triton's interpreter where there is no GPU.
"""

import json
import sys
from typing import Any

import torch

from vllm_spec_plugin.compat.v2_verification import noise_of_step

K = 2
# Next token's probabilities by the last token, of target and draft.
TARGET = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.35, 0.4, 0.25]])
DRAFT = torch.tensor([[0.3, 0.5, 0.2], [0.3, 0.3, 0.4], [0.25, 0.35, 0.4]])


def verified(
    p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, seeds: torch.Tensor, position: int, is_named: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verifies by blocks: [n, K + 1] output tokens, and [n], how many count.

    Args:
        p: [n, drafts + 1, vocab_size], the target's probabilities.
        q: [n, K, vocab_size], the drafts' probabilities.
        drafts: [n, drafts], draft tokens.
        seeds: [n], of the requests.
        position: of the last token.
        is_named: whether random numbers are named by step, else by position, as vLLM does.
    """
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    n, rows, _ = p.shape
    requests, local = torch.arange(n), torch.arange(rows).repeat(n)
    positions = position + local
    follows = torch.cat([torch.zeros(n, 1, dtype=torch.long), drafts], 1).flatten().int()
    tokens, counts = rejection_sample(
        p.log().flatten(0, 1).contiguous(),
        q.log().contiguous(),
        follows,
        torch.arange(n + 1).int() * rows,
        noise_of_step(positions, local, K) if is_named else positions,
        requests,
        requests.repeat_interleave(rows),
        local.int(),
        torch.ones(n),
        seeds,
        K,
        use_block_verification=True,
    )
    return tokens.long(), counts.long()


def retested(n: int, *, is_named: bool) -> tuple[int, int]:
    """Returns how many drafts are accepted after one was rejected at their position, and of how many; half should be.

    The first step accepts both drafts or neither, by the number of the second position. Requests that accept neither
    output one token, so that their next step tests a draft at that position.
    """
    half, same = torch.tensor([[0.4, 0.6], [0.8, 0.2]]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    seeds, drafts = torch.randint(-(2**62), 2**62, (n,)), torch.zeros(n, K, dtype=torch.long)
    p = torch.stack([half[0], same[0], same[0]]).expand(n, -1, -1)
    q = torch.stack([half[1], same[1]]).expand(n, -1, -1)
    none = verified(p, q, drafts, seeds, 0, is_named)[1] == 1
    p, q = torch.stack([half[0], same[0]]).expand(n, -1, -1), torch.stack([half[1], same[1]]).expand(n, -1, -1)
    again = verified(p, q, drafts[:, :1], seeds, 1, is_named)[1][none]
    return int((again == 2).sum()), len(again)


def texts(n: int) -> tuple[list[int], list[int]]:
    """Counts the first two tokens of outputs after token 0, [9]: one step, and tokens of the target after it.

    Second are those of a wrong verification, which samples from p after a rejection.
    """
    seeds = torch.randint(-(2**62), 2**62, (n,))
    drafts, last = [], torch.zeros(n, dtype=torch.long)
    for _ in range(K):
        last = torch.multinomial(DRAFT[last], 1)[:, 0]
        drafts.append(last)
    follows = torch.stack([torch.zeros(n, dtype=torch.long), *drafts], 1)
    tokens, counts = verified(TARGET[follows], DRAFT[follows[:, :K]], follows[:, 1:], seeds, 5, True)
    last = counts[:, None] - 1
    from_p = torch.multinomial(TARGET[follows.gather(1, last)[:, 0]], 1)
    wrong = tokens.scatter(1, last, torch.where(last < K, from_p, tokens.gather(1, last)))
    found = []
    for output in (tokens, wrong):
        second = torch.where(counts > 1, output[:, 1], torch.multinomial(TARGET[output[:, 0]], 1)[:, 0])
        found.append((output[:, 0] * 3 + second).bincount(minlength=9).tolist())
    return found[0], found[1]


def main(n: int) -> dict[str, Any]:
    """Returns all counts of n requests each."""
    torch.manual_seed(0)
    right, wrong = texts(n)
    return {
        "expected": (TARGET[0][:, None] * TARGET).flatten().tolist(),
        "texts": right,
        "without residual": wrong,
        "retested": retested(n // 4, is_named=True),
        "retested by position": retested(n // 4, is_named=False),
    }


if __name__ == "__main__":
    from vllm_spec_tools.engines.serving import runs_on_cpu

    if runs_on_cpu():
        from tests.engine.v2.interpreter import mend

        mend()
    print(json.dumps(main(int(sys.argv[1]))))
