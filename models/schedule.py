"""Shared by both training runs: batches of text, the optimiser, its learning rate, the progress bar."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console

from vllm_spec_tools.progress import Tasks

TOKENS_PER_STEP = 2048
SHORT, LONG = 512, 2048  # window lengths; the last steps see whole contexts
LONG_SHARE = 0.1
WARMUP_STEPS = 100
SMOOTHING = 0.98


@dataclass
class Batches:
    """Random windows of a token stream, the same ones for the same seed."""

    tokens: torch.Tensor  # [num_tokens] int64
    seed: int

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def draw(self, step: int, steps: int) -> torch.Tensor:
        """One batch, [windows, length + 1] int64: inputs and, one later, the tokens to predict."""
        length = LONG if step >= steps * (1 - LONG_SHARE) else SHORT
        count = TOKENS_PER_STEP // length
        starts = torch.randint(len(self.tokens) - length - 1, (count, 1), generator=self._generator)
        return self.tokens[starts + torch.arange(length + 1)]


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to nothing."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def run(title: str, model: torch.nn.Module, steps: int, peak: float, loss_of: Callable[[int], torch.Tensor]) -> None:
    """Trains `model` in place for `steps` AdamW steps on `loss_of(step)`, showing progress."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=peak,
        betas=(0.9, 0.95),
        fused=True,
    )
    smooth = math.nan
    with Tasks(Console()) as tasks, tasks.task(title, steps) as advance:
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, steps, peak)
            loss = loss_of(step)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            value = loss.item()
            smooth = value if math.isnan(smooth) else SMOOTHING * smooth + (1 - SMOOTHING) * value
            advance(step + 1, f"loss {smooth:.3f}")
