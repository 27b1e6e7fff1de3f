"""Verification of drawn chains by itself: what block verification takes and gains beside token by token."""

import time
from collections.abc import Iterator

import numpy as np
import torch

from vllm_spec_plugin.v1.verification.block import reflected
from vllm_spec_plugin.v1.verification.chain import Method, verify_chain
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.verification.sampling import draw

# Standard deviations of logits over the vocabulary, and of the draft's from the target's where times are taken.
_LOGITS, _APART = 3.0, 1.0
# By how much the draft's logits differ from the target's, from nearly alike to far apart.
APART = (0.25, 0.5, 1.0, 1.5, 2.0)
# Verifications before the first that counts.
_WARM_UP = 2
_PAIRS_AT_ONCE = 500


def time_verification(
    vocab_size: int, num_requests: int, num_tokens: int, rounds: int, seed: int, device: torch.device
) -> Iterator[dict[str, float]]:
    """Times both methods in turn on the same drafts; yields the seconds of each by round, with new drafts.

    Args:
        vocab_size: entries.
        num_requests: of a step, all sampled and with drawn drafts.
        num_tokens: K of each.
        rounds: at least 1.
        seed: of logits, drafts and verification.
        device: where they are verified; a CPU should have one thread, whose time is taken.
    """
    torch.manual_seed(seed)
    rows = Rows.of([num_tokens] * num_requests, device)
    target, draft = _pair(len(rows.request), vocab_size, _APART, device)
    q = draft[rows.draft_row].softmax(-1)
    noise = Noise(vocab_size, device)
    # Other processes do not count on a CPU, other threads would.
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    for turn in range(-_WARM_UP, rounds):
        drafts = draw(q, torch.rand(len(q), dtype=torch.float64, device=device))
        methods: list[Method] = ["token", "block"] if turn % 2 else ["block", "token"]
        seconds: dict[str, float] = {}
        for method in methods:
            logits = target.clone()
            _wait(device)
            begin = clock()
            verify_chain(logits, drafts, q, rows, False, noise, method=method, in_place=True)
            _wait(device)
            seconds[method] = clock() - begin
        if turn >= 0:
            yield seconds


def measure_gain(apart: float, num_tokens: int, vocab_size: int, num_drafts: int, seed: int) -> dict[str, float]:
    """Computes what each method accepts of random drafts, p and q new at every position; the tests are not random.

    Args:
        apart: standard deviation of the draft's logits from the target's.
        num_tokens: K.
        vocab_size: entries.
        num_drafts: of as many steps.
        seed: of logits and drafts.

    Returns:
        acceptance_rate: of a draft token by itself, the mean of sum over x of min(p, q). token, block: accepted tokens
        per step by either method. ratio, error: output tokens per step, block over token, with its standard error.
    """
    torch.manual_seed(seed)
    ratios, rates = [], []
    for begin in range(0, num_drafts, _PAIRS_AT_ONCE):
        count = min(_PAIRS_AT_ONCE, num_drafts - begin)
        target, draft = _pair(count * num_tokens, vocab_size, apart, torch.device("cpu"))
        p, q = target.softmax(-1), draft.softmax(-1)
        rates.append(torch.minimum(p, q).sum(-1))
        tokens = draw(q, torch.rand(len(q), dtype=torch.float64))[:, None]
        ratios.append((p.gather(1, tokens).double() / q.gather(1, tokens).double()).view(count, num_tokens))
    joined = torch.cat(ratios)
    token = joined.clamp_max(1).cumprod(1).sum(1).numpy() + 1
    block = reflected(joined).sum(1).numpy() + 1
    ratio = block.mean() / token.mean()
    error = np.std(block - ratio * token) / token.mean() / len(token) ** 0.5
    figures = float(torch.cat(rates).mean()), token.mean() - 1, block.mean() - 1, ratio, error
    return dict(zip(("acceptance_rate", "token", "block", "ratio", "error"), map(float, figures), strict=True))


def _pair(num_rows: int, vocab_size: int, apart: float, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the target and the draft, each [num_rows, vocab_size] float32."""
    target = torch.randn(num_rows, vocab_size, device=device) * _LOGITS
    return target, target + torch.randn(num_rows, vocab_size, device=device) * apart


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
